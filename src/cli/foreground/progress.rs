//! A progress line on the terminal while a job runs.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::job::JobProgress;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Moves to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// The line; it is never drawn if stderr is not a terminal.
#[derive(Debug)]
pub struct ProgressLine {
    since: Instant,
    is_terminal: bool,
    is_drawn: bool,
}

impl ProgressLine {
    /// A line that is not drawn yet.
    pub fn begin() -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self { since: Instant::now(), is_terminal, is_drawn: false }
    }

    /// Redraws the line.
    pub fn draw(&mut self, progress: &JobProgress) {
        if self.is_terminal {
            self.is_drawn = true;
            put(&format!("{CLEAR}{}", words(progress, self.since.elapsed())));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.is_drawn {
            put(CLEAR);
        }
    }
}

/// Writes `text` to stderr. Ignores write errors.
fn put(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

fn words(progress: &JobProgress, elapsed: Duration) -> String {
    let JobProgress { status, stdout_bytes, stderr_bytes } = progress;
    let seconds = elapsed.as_secs_f64();
    let (stdout, stderr) = (size(*stdout_bytes), size(*stderr_bytes));
    format!("{} {seconds:.1} s, stdout {stdout}, stderr {stderr}", status.word())
}

/// Formats `bytes` in a readable unit with one decimal.
fn size(bytes: u64) -> String {
    let tenths = |unit: u64| {
        let whole = bytes / unit;
        format!("{whole}.{}", (bytes % unit) * 10 / unit)
    };
    match bytes {
        MIB.. => format!("{} MiB", tenths(MIB)),
        KIB.. => format!("{} KiB", tenths(KIB)),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::job::JobStatus;

    #[test]
    fn the_line_shows_status_elapsed_time_and_output_sizes() {
        let progress = |stdout_bytes, stderr_bytes| JobProgress {
            status: JobStatus::Running,
            stdout_bytes,
            stderr_bytes,
        };
        let elapsed = Duration::from_millis(3_249);
        for (stdout, stderr, line) in [
            (0, 1023, "running 3.2 s, stdout 0 B, stderr 1023 B"),
            (1024, 1536, "running 3.2 s, stdout 1.0 KiB, stderr 1.5 KiB"),
            (MIB - 1, 5 * MIB + MIB / 4, "running 3.2 s, stdout 1023.9 KiB, stderr 5.2 MiB"),
        ] {
            assert_eq!(words(&progress(stdout, stderr), elapsed), line);
        }
    }
}
