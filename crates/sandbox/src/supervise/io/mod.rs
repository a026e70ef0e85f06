//! The thread that moves bytes between a program's pipes and the supervisor.
//!
//! A pipe operation can block on the pipe lock while a starved thread of the tenant holds it. So
//! the supervising thread, which enforces the time limit and with whose death the sandbox dies,
//! never touches a pipe.

pub(crate) mod output_capture;
pub(crate) mod pipe;
pub(crate) mod stdin_feed;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::supervise::io::output_capture::{CaptureState, OutputCapture};
use crate::supervise::io::stdin_feed::StdinFeed;
use cofferdam_core::OutputSink;
use cofferdam_core::sync::cancel::CancelToken;

/// A program's three standard streams.
#[derive(Debug)]
pub struct StdioPipes {
    /// Standard output.
    pub stdout: OutputCapture,
    /// Standard error.
    pub stderr: OutputCapture,
    /// Standard input.
    pub feed: Option<StdinFeed>,
}

/// Signals between the io thread and the thread that started it.
#[derive(Debug)]
pub struct IoTokens {
    /// Set by the io thread: a stream crossed its limit, or could not be read.
    pub overflowed: CancelToken,
    /// Set for the io thread: every process of the sandbox is dead.
    dead: CancelToken,
}

impl IoTokens {
    /// Neither is set.
    pub fn new() -> io::Result<Self> {
        Ok(Self { overflowed: CancelToken::new()?, dead: CancelToken::new()? })
    }
}

/// The streams of a program, and the thread that serves them once it is started.
pub struct IoThread<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    tokens: &'env IoTokens,
    idle: Option<IoLoop<'env>>,
    thread: Option<ScopedJoinHandle<'scope, io::Result<bool>>>,
}

impl<'scope, 'env> IoThread<'scope, 'env> {
    /// Does not start the thread: no byte is read for a program that may never start.
    pub fn new(
        scope: &'scope Scope<'scope, 'env>,
        tokens: &'env IoTokens,
        streams: &'env mut StdioPipes,
        sink: &'env mut Option<Box<dyn OutputSink>>,
    ) -> Self {
        let idle = Some(IoLoop { streams, sink, tokens, overflowed: false });
        Self { scope, tokens, idle, thread: None }
    }

    /// Whether the thread is needed even if the program prints nothing: it has stdin to write.
    pub fn is_due(&self) -> bool {
        self.idle.as_ref().is_some_and(|io_loop| io_loop.streams.feed.is_some())
    }

    /// The output pipes, until the thread is started. The first output on one of them starts it. A
    /// program that prints nothing, or ends at once, needs no thread, and polling these pipes takes
    /// no lock.
    pub fn unread(&self) -> [Option<BorrowedFd<'_>>; 2] {
        let streams = self.idle.as_ref().map(|io_loop| &*io_loop.streams);
        [streams.and_then(|s| s.stdout.pipe()), streams.and_then(|s| s.stderr.pipe())]
    }

    /// Starts the thread, unless it is running.
    pub fn start(&mut self) -> io::Result<()> {
        if let Some(io_loop) = self.idle.take() {
            let named = Builder::new().name("io".to_owned());
            self.thread = Some(named.spawn_scoped(self.scope, || io_loop.run_beside())?);
        }
        Ok(())
    }

    /// Starts another thread in the same scope. It must end when the token is set: every process is
    /// dead.
    pub fn beside<T>(
        &self,
        start: impl FnOnce(&'scope Scope<'scope, 'env>, &'env CancelToken) -> T,
    ) -> T {
        start(self.scope, &self.tokens.dead)
    }

    /// Reads the rest of the pipes after every process has died. Returns whether a stream crossed
    /// its limit.
    pub fn finish(self) -> io::Result<bool> {
        self.tokens.dead.cancel();
        match (self.thread, self.idle) {
            (Some(thread), _) => {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("the io thread panicked")))
            }
            (None, Some(io_loop)) => io_loop.run(),
            (None, None) => Ok(false),
        }
    }
}

/// The event that a poll entry reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IoEvent {
    Dead,
    Stdout,
    Stderr,
    Stdin,
    Input,
    Room,
}

struct IoLoop<'env> {
    streams: &'env mut StdioPipes,
    sink: &'env mut Option<Box<dyn OutputSink>>,
    tokens: &'env IoTokens,
    overflowed: bool,
}

impl IoLoop<'_> {
    /// Runs while the program prints.
    fn run_beside(self) -> io::Result<bool> {
        self.streams.stdout.widen();
        self.streams.stderr.widen();
        self.run()
    }

    fn run(mut self) -> io::Result<bool> {
        let result = self.until_dead();
        if result.is_err() {
            self.tokens.overflowed.cancel();
        }
        result.map(|()| self.overflowed)
    }

    fn until_dead(&mut self) -> io::Result<()> {
        loop {
            let ready = self.wait()?;
            if ready.contains(&IoEvent::Dead) {
                return self.last_words();
            }
            for source in ready {
                self.serve(source)?;
            }
        }
    }

    fn wait(&self) -> io::Result<Vec<IoEvent>> {
        let (sources, mut fds) = self.interests();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Vec::new()),
            Err(errno) => return Err(errno.into()),
        }
        let ready = sources.into_iter().zip(fds).filter(|(_, fd)| fd.any().unwrap_or(true));
        Ok(ready.map(|(source, _)| source).collect())
    }

    fn interests(&self) -> (Vec<IoEvent>, Vec<PollFd<'_>>) {
        let StdioPipes { stdout, stderr, feed } = &*self.streams;
        let mut wanted = vec![(IoEvent::Dead, Some(self.tokens.dead.as_fd()), PollFlags::POLLIN)];
        if !self.overflowed {
            match self.sink.as_ref() {
                Some(sink) if !sink.has_room() => {
                    wanted.push((IoEvent::Room, sink.room_fd(), PollFlags::POLLIN));
                }
                _ => wanted.extend([
                    (IoEvent::Stdout, stdout.pipe(), PollFlags::POLLIN),
                    (IoEvent::Stderr, stderr.pipe(), PollFlags::POLLIN),
                ]),
            }
            let writes = feed.as_ref().is_some_and(StdinFeed::has_pending);
            let room = if writes { PollFlags::POLLOUT } else { PollFlags::empty() };
            wanted.extend([
                (IoEvent::Stdin, feed.as_ref().and_then(StdinFeed::pipe), room),
                (IoEvent::Input, feed.as_ref().and_then(StdinFeed::source), PollFlags::POLLIN),
            ]);
        }
        let open = wanted.into_iter().filter_map(|(source, fd, flags)| Some((source, fd?, flags)));
        open.map(|(source, fd, flags)| (source, PollFd::new(fd, flags))).unzip()
    }

    fn serve(&mut self, source: IoEvent) -> io::Result<()> {
        match source {
            IoEvent::Stdout => {
                let progress = self.streams.stdout.read_available(self.sink)?;
                self.captured(progress);
            }
            IoEvent::Stderr => {
                let progress = self.streams.stderr.read_available(self.sink)?;
                self.captured(progress);
            }
            IoEvent::Stdin => self.streams.feed.iter_mut().for_each(StdinFeed::write),
            IoEvent::Input => self.streams.feed.iter_mut().for_each(StdinFeed::read),
            // The next poll asks for room again.
            IoEvent::Room | IoEvent::Dead => {}
        }
        Ok(())
    }

    fn captured(&mut self, progress: CaptureState) {
        if progress == CaptureState::Overflowed {
            self.overflowed = true;
            self.tokens.overflowed.cancel();
        }
    }

    /// Reads what the pipes still held when the last writer died.
    fn last_words(&mut self) -> io::Result<()> {
        // It holds an end of the terminal.
        self.streams.feed = None;
        for capture in [&mut self.streams.stdout, &mut self.streams.stderr] {
            self.overflowed |= capture.drain(self.sink)? == CaptureState::Overflowed;
        }
        Ok(())
    }
}
