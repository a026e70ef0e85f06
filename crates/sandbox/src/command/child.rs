//! A command that runs on a thread of its own.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::sync::watermark::Watermark;
use cofferdam_core::{NotStarted, OutputSink, RunReport, SetupFailure, Stream, Watch};

use super::{Command, Output};

/// How much output waits for its reader before the program does, bytes.
const QUEUED_BYTES_MAX: usize = 256 << 10;

/// A command in its sandbox. Dropped, it is killed, and the drop waits until it is dead.
#[derive(Debug)]
pub struct Child {
    /// The program's standard output, of [`Command::spawn_piped`].
    pub stdout: Option<ChildOutput>,
    /// The program's standard error, of [`Command::spawn_piped`].
    pub stderr: Option<ChildOutput>,
    cancel: CancelToken,
    supervisor: Option<JoinHandle<Result<RunReport, NotStarted>>>,
}

/// One output stream of a running [`Child`], read as it comes. The program waits while too much of
/// it is unread. Dropped, it lets the program write without being read.
#[derive(Debug)]
pub struct ChildOutput {
    pieces: Receiver<OutputPiece>,
    /// What the last read left of its piece.
    rest: io::Cursor<Vec<u8>>,
}

/// Bytes on their way to their reader. Dropped, read or not, they make room for more.
#[derive(Debug)]
struct OutputPiece {
    bytes: Vec<u8>,
    bytes_counted: usize,
    level: Arc<Watermark>,
}

impl Drop for OutputPiece {
    fn drop(&mut self) {
        self.level.fall(self.bytes_counted);
    }
}

impl Child {
    pub(super) fn spawn(command: Command, piped: bool) -> Result<Self, SetupFailure> {
        let failed = |step: &'static str| move |error| SetupFailure::from_io(step, &error);
        let cancel = CancelToken::new().map_err(failed("eventfd"))?;
        let (sink, stdout, stderr) = if piped {
            let (sink, stdout, stderr) = pipes().map_err(failed("output"))?;
            (Some(Box::new(sink) as Box<dyn OutputSink>), Some(stdout), Some(stderr))
        } else {
            (None, None, None)
        };
        let watch = Watch::of(cancel.clone());
        let supervisor = thread::Builder::new()
            .name("sandbox".to_owned())
            .spawn(move || supervise(command, &watch, sink))
            .map_err(failed("thread"))?;
        Ok(Self { stdout, stderr, cancel, supervisor: Some(supervisor) })
    }

    /// Kills the program and everything it started. [`Child::wait`] then says
    /// [`Outcome::Cancelled`](cofferdam_core::Outcome::Cancelled).
    pub fn kill(&self) {
        self.cancel.cancel();
    }

    /// Waits until the sandbox is gone and returns what the program wrote. Output that is still
    /// to be read from [`Child::stdout`] and [`Child::stderr`] is dropped: take them first to read
    /// on.
    ///
    /// # Errors
    /// As [`Command::output`].
    pub fn wait(mut self) -> Result<Output, NotStarted> {
        (self.stdout, self.stderr) = (None, None);
        self.join().map(Output::from)
    }

    /// Whether the command has ended, so that [`Child::wait`] returns at once.
    pub fn is_finished(&self) -> bool {
        self.supervisor.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&mut self) -> Result<RunReport, NotStarted> {
        let ended = self.supervisor.take().map(JoinHandle::join);
        let lost = || Err(SetupFailure::from_words("supervise", "the thread panicked").into());
        ended.and_then(Result::ok).unwrap_or_else(lost)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.supervisor.is_some() {
            (self.stdout, self.stderr) = (None, None);
            self.cancel.cancel();
            // The report of a command that nothing waits for.
            drop(self.join());
        }
    }
}

/// Runs `command` to its end on this thread.
pub(super) fn run(
    command: Command,
    sink: Option<Box<dyn OutputSink>>,
) -> Result<RunReport, NotStarted> {
    let cancel = CancelToken::new().map_err(|error| SetupFailure::from_io("eventfd", &error))?;
    supervise(command, &Watch::of(cancel), sink)
}

fn supervise(
    command: Command,
    watch: &Watch,
    mut sink: Option<Box<dyn OutputSink>>,
) -> Result<RunReport, NotStarted> {
    let began = Instant::now();
    let (host, spec) = command.into_spec()?;
    let host_id = Arc::new(host.host_id()?);
    let fs = host.create_fs(&spec.limits, &host_id)?;
    host.start(spec, fs, Retained::of(host_id), began)?.supervise(watch, &mut sink)
}

/// The supervisor's end of both streams.
#[derive(Debug)]
struct Pipes {
    stdout: Sender<OutputPiece>,
    stderr: Sender<OutputPiece>,
    level: Arc<Watermark>,
}

fn pipes() -> io::Result<(Pipes, ChildOutput, ChildOutput)> {
    let level = Arc::new(Watermark::new(QUEUED_BYTES_MAX)?);
    let end = || {
        let (sender, pieces) = channel();
        (sender, ChildOutput { pieces, rest: io::Cursor::default() })
    };
    let ((stdout, stdout_end), (stderr, stderr_end)) = (end(), end());
    Ok((Pipes { stdout, stderr, level }, stdout_end, stderr_end))
}

impl OutputSink for Pipes {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let sender = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        self.level.rise(bytes.len());
        let level = Arc::clone(&self.level);
        // A reader that is gone drops the piece.
        let _ =
            sender.send(OutputPiece { bytes: bytes.to_vec(), bytes_counted: bytes.len(), level });
    }

    fn is_only_reader(&self) -> bool {
        true
    }

    fn has_room(&self) -> bool {
        self.level.has_room()
    }

    fn room_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.level.as_fd())
    }
}

impl Read for ChildOutput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.rest.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Ok(mut piece) = self.pieces.recv() else { return Ok(0) };
            self.rest = io::Cursor::new(std::mem::take(&mut piece.bytes));
        }
    }
}
