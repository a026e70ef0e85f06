//! What a block in a context has printed, within limits.

use cofferdam_core::{CapturedStream, Stream};

/// Both streams of one block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrintedOutput {
    /// What was printed to stdout.
    pub stdout: CapturedStream,
    /// What was printed to stderr.
    pub stderr: CapturedStream,
    stdout_bytes_max: u64,
    stderr_bytes_max: u64,
}

impl PrintedOutput {
    /// Keeps at most so many bytes of each stream.
    pub fn within(stdout_bytes_max: u64, stderr_bytes_max: u64) -> Self {
        Self { stdout_bytes_max, stderr_bytes_max, ..Self::default() }
    }

    /// Adds output. What does not fit is counted and dropped.
    pub fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let (captured, bytes_max) = match stream {
            Stream::Stdout => (&mut self.stdout, self.stdout_bytes_max),
            Stream::Stderr => (&mut self.stderr, self.stderr_bytes_max),
        };
        captured.bytes_total = captured.bytes_total.saturating_add(bytes.len() as u64);
        let room = bytes_max.saturating_sub(captured.bytes.len() as u64);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        captured.truncated |= bytes.len() > room;
        captured.bytes.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    /// How many bytes are kept.
    pub fn kept_bytes(&self) -> u64 {
        (self.stdout.bytes.len() + self.stderr.bytes.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_beyond_its_limit_is_counted_and_dropped() {
        let mut printed = PrintedOutput::within(4, 0);
        printed.push(Stream::Stdout, b"abc");
        assert!(!printed.stdout.truncated);
        printed.push(Stream::Stdout, "é!".as_bytes());
        printed.push(Stream::Stderr, b"x");
        assert_eq!((printed.stdout.bytes_total, printed.stdout.truncated), (6, true));
        assert_eq!(printed.stdout.whole_characters(), b"abc");
        assert_eq!((printed.stderr.bytes_total, printed.stderr.truncated), (1, true));
        assert_eq!(printed.kept_bytes(), 4);
    }
}
