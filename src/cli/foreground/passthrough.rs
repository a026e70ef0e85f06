//! Passes the output of a run on to our own stdout and stderr.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::watermark::Watermark;
use cofferdam_core::{OutputSink, Stream};

/// How much output may be queued for our readers before the program blocks, bytes.
const QUEUED_BYTES_MAX: usize = 256 << 10;
/// How long our readers may take for the remaining output of a run that was ended early,
/// milliseconds. There is no limit if the run ended by itself.
const LAST_WORDS_MS: u16 = 300;

/// The sink for the supervising thread. A thread for each stream writes the output, so that the
/// supervising thread never waits for our readers.
#[derive(Debug)]
pub struct Passthrough {
    stdout: StreamSender,
    stderr: StreamSender,
    level: Arc<Watermark>,
}

/// The channel to the writer thread of one stream. The thread starts with the first output, because
/// many programs print nothing.
#[derive(Debug)]
struct StreamSender {
    idle: Option<StreamWriter>,
    pieces: Option<Sender<Vec<u8>>>,
}

/// One of our own streams that could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokenStream {
    /// The stream.
    pub stream: Stream,
    /// The error; `EPIPE` if the reader closed the pipe.
    pub errno: Errno,
}

/// Waits for the writer threads.
#[derive(Debug)]
pub struct StreamWriters {
    /// At end of file once every writer thread has ended.
    finished: PipeReader,
    broken: Arc<OnceLock<BrokenStream>>,
    cancel: CancelToken,
}

/// Opens our own stdout and stderr for the output of a run. If writing fails, raises `cancel`,
/// because the output has no reader.
pub fn open(cancel: &CancelToken) -> io::Result<(Passthrough, StreamWriters)> {
    let level = Arc::new(Watermark::new(QUEUED_BYTES_MAX)?);
    let (finished, alive) = io::pipe()?;
    let writers =
        StreamWriters { finished, broken: Arc::new(OnceLock::new()), cancel: cancel.clone() };
    let lane = |stream, out: OwnedFd, alive: PipeWriter| {
        let writer = StreamWriter {
            stream,
            out: out.into(),
            level: Arc::clone(&level),
            broken: Arc::clone(&writers.broken),
            cancel: cancel.clone(),
            _alive: alive,
        };
        StreamSender { idle: Some(writer), pieces: None }
    };
    let stdout =
        lane(Stream::Stdout, io::stdout().as_fd().try_clone_to_owned()?, alive.try_clone()?);
    let stderr = lane(Stream::Stderr, io::stderr().as_fd().try_clone_to_owned()?, alive);
    Ok((Passthrough { stdout, stderr, level }, writers))
}

impl OutputSink for Passthrough {
    fn is_only_reader(&self) -> bool {
        true
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let lane = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        self.level.rise(bytes.len());
        if !lane.send(bytes) {
            self.level.fall(bytes.len());
        }
    }

    fn has_room(&self) -> bool {
        self.level.has_room()
    }

    fn room_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.level.as_fd())
    }
}

impl StreamSender {
    /// Sends `bytes` to the thread; false if there is no thread.
    fn send(&mut self, bytes: &[u8]) -> bool {
        if let Some(writer) = self.idle.take() {
            self.pieces = writer.start();
        }
        self.pieces.as_ref().is_some_and(|pieces| pieces.send(bytes.to_vec()).is_ok())
    }
}

/// The writer thread of one stream.
#[derive(Debug)]
struct StreamWriter {
    stream: Stream,
    out: File,
    level: Arc<Watermark>,
    broken: Arc<OnceLock<BrokenStream>>,
    cancel: CancelToken,
    _alive: PipeWriter,
}

impl StreamWriter {
    /// Starts the thread. If that fails, the stream counts as broken.
    fn start(self) -> Option<Sender<Vec<u8>>> {
        let (stream, broken, cancel) = (self.stream, Arc::clone(&self.broken), self.cancel.clone());
        let (sender, pieces) = channel();
        let named = thread::Builder::new().name("output".to_owned());
        match named.spawn(move || self.write(pieces)) {
            Ok(_) => Some(sender),
            Err(error) => {
                let errno = error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw);
                let _ = broken.set(BrokenStream { stream, errno });
                cancel.cancel();
                None
            }
        }
    }

    /// Writes output until the sink is dropped; discards it once the stream is broken.
    fn write(mut self, pieces: Receiver<Vec<u8>>) {
        let mut writable = true;
        for piece in pieces {
            if writable && let Err(errno) = write_fully(&mut self.out, &piece) {
                writable = false;
                let _ = self.broken.set(BrokenStream { stream: self.stream, errno });
                self.cancel.cancel();
            }
            self.level.fall(piece.len());
        }
    }
}

impl StreamWriters {
    /// Waits until everything is written, after the sink is dropped; returns the broken stream, if
    /// any. If the run was ended early, waits for at most [`LAST_WORDS_MS`].
    pub fn wait(self) -> io::Result<Option<BrokenStream>> {
        let written = PollFd::new(self.finished.as_fd(), PollFlags::POLLIN);
        let ended_early = PollFd::new(self.cancel.as_fd(), PollFlags::POLLIN);
        wait_for(&mut [written.clone(), ended_early], PollTimeout::NONE)?;
        wait_for(&mut [written], PollTimeout::from(LAST_WORDS_MS))?;
        Ok(self.broken.get().copied())
    }
}

fn wait_for(fds: &mut [PollFd<'_>], timeout: PollTimeout) -> io::Result<()> {
    loop {
        match poll(fds, timeout) {
            Err(Errno::EINTR) => {}
            result => return Ok(result.map(drop)?),
        }
    }
}

/// Writes all of `bytes`. Another program may have made the descriptor non-blocking.
fn write_fully(out: &mut File, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(Errno::EIO),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EINTR) => {}
                Some(Errno::EAGAIN) => {
                    let ready = PollFd::new(out.as_fd(), PollFlags::POLLOUT);
                    wait_for(&mut [ready], PollTimeout::NONE).map_err(|_| Errno::EIO)?;
                }
                errno => return Err(errno.unwrap_or(Errno::EIO)),
            },
        }
    }
    Ok(())
}
