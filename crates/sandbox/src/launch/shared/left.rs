//! What programs left: their output is read on, and their groups are removed when all is dead.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cgroup::SandboxGroup;
use crate::supervise::io::pipe::PipeEnd;
use crate::sys;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{OutputSink, Stream};

/// The size of one read.
const CHUNK_BYTES: usize = 64 << 10;
/// How many reads of one pipe follow each other.
const READS_MAX: usize = 8;
/// The pause after so many reads: left processes must not keep the thread busy.
const PAUSE: Duration = Duration::from_millis(10);
/// How soon a group is looked at again that lists a process which is dead.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A program whose main process has ended.
pub struct LeftProgram {
    /// Its number in the sandbox.
    pub number: u64,
    /// Its group.
    pub group: Arc<SandboxGroup>,
    /// What it wrote to, as far as somebody may write still.
    pub pipes: Vec<(Stream, PipeEnd)>,
    /// Takes what is written, if somebody wants it.
    pub sink: Option<Box<dyn OutputSink>>,
    /// A process of the group, while it is not known to be dead.
    pub process: Option<OwnedFd>,
    /// When to look again, if not before.
    pub look_at: Option<Deadline>,
    /// Until when nothing is read.
    pub quiet_until: Option<Deadline>,
}

impl LeftProgram {
    /// Just ended: the keeper looks at it at once.
    pub fn new(
        number: u64,
        group: Arc<SandboxGroup>,
        pipes: Vec<(Stream, PipeEnd)>,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Self {
        let look_at = Some(Deadline::after(Duration::ZERO));
        Self { number, group, pipes, sink, process: None, look_at, quiet_until: None }
    }

    /// The descriptors to wait for: its pipes, and a process of it.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let is_quiet = self.quiet_until.is_some_and(|until| !until.passed());
        let pipes = self.pipes.iter().filter(move |_| !is_quiet).map(|(_, pipe)| pipe.as_fd());
        pipes.chain(self.process.as_ref().map(AsFd::as_fd))
    }

    /// How long nothing of it is due.
    pub fn next_wake(&self) -> Option<Duration> {
        let due = [self.look_at, self.quiet_until.filter(|_| !self.pipes.is_empty())];
        due.into_iter().flatten().map(Deadline::remaining).min()
    }

    /// Reads what was written, and looks whether anything is alive. Returns whether all is dead.
    pub fn serve(&mut self) -> bool {
        if self.quiet_until.is_none_or(Deadline::passed) {
            self.quiet_until = None;
            self.read();
        }
        if self.process.as_ref().is_some_and(is_alive) {
            return false;
        }
        if self.look_at.is_some_and(|at| !at.passed()) {
            return false;
        }
        (self.process, self.look_at) = (None, None);
        if self.group.is_empty() {
            return true;
        }
        let listed = self.group.processes().unwrap_or_default();
        let first = listed.first().and_then(|pid| sys::pidfd_of(*pid).ok());
        // It may be dead by now: then the group is looked at again.
        self.process = first.filter(is_alive);
        if self.process.is_none() {
            self.look_at = Some(Deadline::after(LOOK_AGAIN));
        }
        false
    }

    fn read(&mut self) {
        let Self { pipes, sink, quiet_until, .. } = self;
        pipes.retain_mut(|(stream, pipe)| match pump(*stream, pipe, sink) {
            Ok(PumpEnd::Empty) => true,
            Ok(PumpEnd::More) => {
                *quiet_until = Some(Deadline::after(PAUSE));
                true
            }
            // EIO: the last process has closed the terminal.
            Ok(PumpEnd::Closed) | Err(_) => false,
        });
    }
}

impl std::fmt::Debug for LeftProgram {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("LeftProgram").field("number", &self.number).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PumpEnd {
    Empty,
    More,
    Closed,
}

/// Passes on what can be read, a bounded amount.
fn pump(
    stream: Stream,
    pipe: &mut PipeEnd,
    sink: &mut Option<Box<dyn OutputSink>>,
) -> io::Result<PumpEnd> {
    let mut chunk = vec![0; CHUNK_BYTES];
    for _ in 0..READS_MAX {
        match pipe.read(&mut chunk) {
            Ok(0) => return Ok(PumpEnd::Closed),
            Ok(count) => {
                if let Some(sink) = sink {
                    sink.take(stream, chunk.get(..count).unwrap_or_default());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(PumpEnd::Empty),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(PumpEnd::More)
}

fn is_alive(process: &OwnedFd) -> bool {
    let mut interest = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    poll(&mut interest, PollTimeout::ZERO) == Ok(0)
}
