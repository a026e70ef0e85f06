//! The output of a job: hashed and counted whole, stored up to its limits, announced as it comes.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::job::api::JobProgress;
use cofferdam_core::job::Sha256;
use cofferdam_core::values::digest::Digest;
use cofferdam_core::{OutputSink, Stream};

/// Both streams of one run, shared by the run and its sink.
#[derive(Debug, Clone)]
pub struct JobOutput(Arc<SharedOutput>);

#[derive(Debug)]
struct SharedOutput {
    kept: Mutex<StreamPair>,
    progress: watch::Sender<JobProgress>,
}

#[derive(Debug)]
struct StreamPair {
    stdout: StreamRecorder,
    stderr: StreamRecorder,
}

/// Records one stream.
#[derive(Debug)]
struct StreamRecorder {
    file: File,
    bytes_max: u64,
    kept: u64,
    total: u64,
    digest: Digest,
    broken: Option<io::Error>,
}

/// A stream that has ended.
#[derive(Debug)]
pub struct RecordedStream {
    /// The bytes in its file.
    pub kept: u64,
    /// The bytes that the program wrote.
    pub total: u64,
    /// The digest of all bytes written.
    pub sha256: Sha256,
    /// Why the file is not complete.
    pub broken: Option<io::Error>,
}

impl StreamRecorder {
    fn new(file: File, bytes_max: u64) -> Self {
        Self { file, bytes_max, kept: 0, total: 0, digest: Digest::default(), broken: None }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.total = self.total.saturating_add(bytes.len() as u64);
        let room = usize::try_from(self.bytes_max - self.kept).unwrap_or(usize::MAX);
        let wanted = bytes.get(..room).unwrap_or(bytes);
        if wanted.is_empty() || self.broken.is_some() {
            return;
        }
        match self.file.write_all(wanted) {
            Ok(()) => self.kept += wanted.len() as u64,
            Err(error) => self.broken = Some(error),
        }
    }

    fn end(&mut self) -> RecordedStream {
        RecordedStream {
            kept: self.kept,
            total: self.total,
            sha256: Sha256::from_digest(std::mem::take(&mut self.digest)),
            broken: self.broken.take(),
        }
    }
}

impl JobOutput {
    /// Records into empty files, each up to its limit, and sends the sizes to `progress`.
    pub fn new(
        (stdout, stdout_bytes_max): (File, u64),
        (stderr, stderr_bytes_max): (File, u64),
        progress: watch::Sender<JobProgress>,
    ) -> Self {
        let kept = Mutex::new(StreamPair {
            stdout: StreamRecorder::new(stdout, stdout_bytes_max),
            stderr: StreamRecorder::new(stderr, stderr_bytes_max),
        });
        Self(Arc::new(SharedOutput { kept, progress }))
    }

    /// The sink for the run.
    pub fn sink(&self) -> Box<dyn OutputSink> {
        Box::new(self.clone())
    }

    /// Returns stdout and stderr. Called once, after the run.
    pub fn end(&self) -> (RecordedStream, RecordedStream) {
        let mut both = self.lock();
        (both.stdout.end(), both.stderr.end())
    }

    fn lock(&self) -> MutexGuard<'_, StreamPair> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputSink for JobOutput {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let mut both = self.lock();
        let taker = match stream {
            Stream::Stdout => &mut both.stdout,
            Stream::Stderr => &mut both.stderr,
        };
        taker.take(bytes);
        let (stdout_bytes, stderr_bytes) = (both.stdout.kept, both.stderr.kept);
        drop(both);
        self.0.progress.send_if_modified(|progress| {
            let before = (progress.stdout_bytes, progress.stderr_bytes);
            (progress.stdout_bytes, progress.stderr_bytes) = (stdout_bytes, stderr_bytes);
            before != (stdout_bytes, stderr_bytes)
        });
    }

    fn is_only_reader(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;
    use cofferdam_core::job::JobStatus;
    use cofferdam_core::values::digest::sha256_of;

    #[test]
    fn everything_is_hashed_and_counted_and_stored_up_to_the_limit() {
        let place = tempdir().unwrap();
        let file = |name| File::create_new(place.path().join(name)).unwrap();
        let start = JobProgress { status: JobStatus::Running, stdout_bytes: 0, stderr_bytes: 0 };
        let (sender, receiver) = watch::channel(start);
        let output = JobOutput::new((file("out"), 5), (file("err"), 0), sender);
        let mut sink = output.sink();
        for piece in [&b"abc"[..], b"", b"def", b"ghi"] {
            sink.take(Stream::Stdout, piece);
        }
        sink.take(Stream::Stderr, b"x");
        assert_eq!(*receiver.borrow(), JobProgress { stdout_bytes: 5, ..start });
        let (stdout, stderr) = output.end();
        assert_eq!((stdout.kept, stdout.total, stderr.kept, stderr.total), (5, 9, 0, 1));
        assert_eq!(stdout.sha256.as_str(), sha256_of(b"abcdefghi"));
        assert_eq!(stderr.sha256.as_str(), sha256_of(b"x"));
        assert_eq!(std::fs::read(place.path().join("out")).unwrap(), b"abcde");
    }

    #[test]
    fn a_full_disk_is_reported_and_delays_nothing() {
        let (sender, _) = watch::channel(JobProgress {
            status: JobStatus::Running,
            stdout_bytes: 0,
            stderr_bytes: 0,
        });
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let output = JobOutput::new((full(), 9), (full(), 9), sender);
        let mut sink = output.sink();
        sink.take(Stream::Stdout, b"abc");
        sink.take(Stream::Stdout, b"abc");
        let (stdout, stderr) = output.end();
        assert_eq!((stdout.kept, stdout.total), (0, 6));
        assert_eq!(stdout.broken.unwrap().raw_os_error(), Some(libc::ENOSPC));
        assert!(stderr.broken.is_none());
    }
}
