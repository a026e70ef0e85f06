//! A run's output on its way to our own stdout and stderr.

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

/// How much may wait for our readers before the program does, bytes.
const QUEUED_BYTES_MAX: usize = 256 << 10;
/// How long our readers may take for the rest of a run that was ended early,
/// milliseconds. Those of a run that ended by itself may take their time, as
/// they may with any program.
const LAST_WORDS_MS: u16 = 300;

/// The end on the supervising thread. Each stream has a thread that writes it,
/// so that only those wait for our readers.
#[derive(Debug)]
pub struct Passthrough {
    stdout: Lane,
    stderr: Lane,
    level: Arc<Watermark>,
}

/// One stream's way to its thread, which starts with the first piece: many programs print nothing.
#[derive(Debug)]
struct Lane {
    idle: Option<Writer>,
    pieces: Option<Sender<Vec<u8>>>,
}

/// A stream of ours that could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub stream: Stream,
    /// What the kernel said; `EPIPE` for a reader that has gone.
    pub errno: Errno,
}

/// The end that waits for the writing threads.
#[derive(Debug)]
pub struct Writers {
    /// At its end once every writer is.
    finished: PipeReader,
    broken: Arc<OnceLock<Broken>>,
    cancel: CancelToken,
}

/// Gets ready to write to our stdout and stderr. One that cannot be written raises
/// `cancel`: nobody is left to run for.
pub fn open(cancel: &CancelToken) -> io::Result<(Passthrough, Writers)> {
    let level = Arc::new(Watermark::new(QUEUED_BYTES_MAX)?);
    let (finished, alive) = io::pipe()?;
    let writers = Writers { finished, broken: Arc::new(OnceLock::new()), cancel: cancel.clone() };
    let lane = |stream, out: OwnedFd, alive: PipeWriter| {
        let writer = Writer {
            stream,
            out: out.into(),
            level: Arc::clone(&level),
            broken: Arc::clone(&writers.broken),
            cancel: cancel.clone(),
            _alive: alive,
        };
        Lane { idle: Some(writer), pieces: None }
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

impl Lane {
    /// Whether the thread has taken `bytes`: it takes pieces for as long as there is a sender.
    fn send(&mut self, bytes: &[u8]) -> bool {
        if let Some(writer) = self.idle.take() {
            self.pieces = writer.start();
        }
        self.pieces.as_ref().is_some_and(|pieces| pieces.send(bytes.to_vec()).is_ok())
    }
}

/// One stream's thread.
#[derive(Debug)]
struct Writer {
    stream: Stream,
    out: File,
    level: Arc<Watermark>,
    broken: Arc<OnceLock<Broken>>,
    cancel: CancelToken,
    _alive: PipeWriter,
}

impl Writer {
    /// Starts the thread. Without one the stream is broken.
    fn start(self) -> Option<Sender<Vec<u8>>> {
        let (stream, broken, cancel) = (self.stream, Arc::clone(&self.broken), self.cancel.clone());
        let (sender, pieces) = channel();
        let named = thread::Builder::new().name("output".to_owned());
        match named.spawn(move || self.write(pieces)) {
            Ok(_) => Some(sender),
            Err(error) => {
                let errno = error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw);
                let _ = broken.set(Broken { stream, errno });
                cancel.cancel();
                None
            }
        }
    }

    /// Writes what comes until the sink is gone; into the void once the stream is broken.
    fn write(mut self, pieces: Receiver<Vec<u8>>) {
        let mut writable = true;
        for piece in pieces {
            if writable && let Err(errno) = write_fully(&mut self.out, &piece) {
                writable = false;
                let _ = self.broken.set(Broken { stream: self.stream, errno });
                self.cancel.cancel();
            }
            self.level.fall(piece.len());
        }
    }
}

impl Writers {
    /// Waits until everything is written, the sink being gone; says whether a
    /// stream broke. A run that was ended early has its readers waited for no
    /// longer than [`LAST_WORDS_MS`].
    pub fn wait(self) -> io::Result<Option<Broken>> {
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

/// Writes all of `bytes`, to a descriptor that another program may have made
/// non-blocking too.
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
