//! The output of a command: the beginning is kept, all of it is counted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::plan::StepLimits;
use cofferdam_core::job::{Sha256, StreamRecord};
use cofferdam_core::values::digest::Digest;
use cofferdam_core::{OutputSink, Stream};

/// What a command writes, while it does. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct StepOutput(Arc<Mutex<[KeptStream; 2]>>);

#[derive(Debug)]
struct KeptStream {
    kept: Vec<u8>,
    kept_bytes_max: usize,
    bytes_total: u64,
    digest: Digest,
}

impl StepOutput {
    /// Keeps as much as `limits` allow.
    pub(super) fn new(limits: &StepLimits) -> Self {
        let stream = |kept_bytes_max| KeptStream {
            kept: Vec::new(),
            kept_bytes_max: usize::try_from(kept_bytes_max).unwrap_or(usize::MAX),
            bytes_total: 0,
            digest: Digest::default(),
        };
        let streams = [stream(limits.stdout_bytes_max), stream(limits.stderr_bytes_max)];
        Self(Arc::new(Mutex::new(streams)))
    }

    /// Adds the next bytes of `stream`.
    pub(super) fn add(&self, stream: Stream, bytes: &[u8]) {
        let [stdout, stderr] = &mut *self.streams();
        match stream {
            Stream::Stdout => stdout.add(bytes),
            Stream::Stderr => stderr.add(bytes),
        }
    }

    /// What was written to stdout and stderr; nothing afterwards.
    pub(super) fn take(&self) -> (StreamRecord, StreamRecord) {
        let [stdout, stderr] = &mut *self.streams();
        (stdout.take(), stderr.take())
    }

    fn streams(&self) -> MutexGuard<'_, [KeptStream; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptStream {
    fn add(&mut self, bytes: &[u8]) {
        let room = self.kept_bytes_max.saturating_sub(self.kept.len()).min(bytes.len());
        self.kept.extend(bytes.iter().take(room));
        self.bytes_total += bytes.len() as u64;
        self.digest.update(bytes);
    }

    fn take(&mut self) -> StreamRecord {
        let (kept, digest) = (std::mem::take(&mut self.kept), std::mem::take(&mut self.digest));
        StreamRecord::of(kept, self.bytes_total, Sha256::from_digest(digest))
    }
}

impl OutputSink for StepOutput {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        self.add(stream, bytes);
    }

    fn takes_excess(&self) -> bool {
        true
    }

    fn is_only_reader(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::values::digest::sha256_of;

    #[test]
    fn the_beginning_is_kept_and_all_is_counted() {
        let limits =
            StepLimits { stdout_bytes_max: 4, stderr_bytes_max: 0, ..StepLimits::default() };
        let output = StepOutput::new(&limits);
        for (stream, bytes) in
            [(Stream::Stdout, "abc"), (Stream::Stderr, "x"), (Stream::Stdout, "def")]
        {
            output.add(stream, bytes.as_bytes());
        }
        let (stdout, stderr) = output.take();
        assert_eq!((stdout.text.as_str(), stdout.bytes, stdout.truncated), ("abcd", 6, true));
        assert_eq!(stdout.sha256.as_str(), sha256_of(b"abcdef"));
        assert_eq!((stderr.text.as_str(), stderr.bytes, stderr.truncated), ("", 1, true));
    }
}
