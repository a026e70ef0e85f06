//! The helper in a container: its first process, which runs every command that comes over stdin.
//!
//! Nothing in the container can read its memory or its pipe, and the kernel lets no process of the container kill
//! it. When stdin ends it returns, and the kernel kills the remaining processes.

mod facts;
mod read;
mod step;
mod take_over;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_dumpable;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::getpid;

use self::facts::container_facts;
pub(super) use self::facts::namespaces;
use self::read::read_file;
use self::step::InnerStep;
use self::take_over::take_over;
use super::call::set_nonblocking;
use super::frame::{DATA_BYTES_MAX, FrameBuffer, FrameKind, PipeFrame, frame};
use super::order::{ContainerOrder, ContainerReply, LimitEvents};
use super::relay::{RELAYS_MAX, Relays};
use crate::case::cell::host::message::{EndedStep, StepOrder, StepReply};
use cofferdam_core::EGRESS_PORT;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// The most bytes of stdin that wait for their order.
const STDIN_BYTES_MAX: usize = 16 << 20;
/// Nothing more is read of commands and connections while more bytes than this wait for the pipe.
const UNSENT_BYTES_MAX: usize = 256 << 10;

/// The helper and its pipe.
#[derive(Debug)]
struct InnerHelper {
    input: File,
    output: File,
    arrived: FrameBuffer,
    /// Frames that the pipe has not taken yet. A write that waits could wait for ever: the engine passes on both
    /// directions in turn.
    unsent: Vec<u8>,
    signals: SignalFd,
    /// Stdin of the next command.
    stdin: Vec<u8>,
    step: Option<InnerStep>,
    /// Where commands reach the proxy, while one runs that may.
    door: Option<TcpListener>,
    relays: Relays,
}

/// Serves the executor at the other end of stdin and stdout until it closes stdin.
///
/// # Errors
/// This is not the first process of a container, or the other end sends something else.
pub fn serve_container() -> io::Result<()> {
    // It kills every process that it sees.
    if getpid().as_raw() != 1 {
        return Err(io::Error::other("this is not the first process of a container"));
    }
    set_dumpable(false)?;
    let children = child_signals();
    children.thread_block()?;
    let mut helper = InnerHelper {
        input: File::from(io::stdin().as_fd().try_clone_to_owned()?),
        output: File::from(io::stdout().as_fd().try_clone_to_owned()?),
        arrived: FrameBuffer::default(),
        unsent: Vec::new(),
        signals: SignalFd::with_flags(&children, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?,
        stdin: Vec::new(),
        step: None,
        door: None,
        relays: Relays::default(),
    };
    set_nonblocking(&helper.output)?;
    helper.send(FrameKind::Hello, &serde_json::to_vec(&container_facts())?)?;
    while helper.turn()? {}
    Ok(())
}

impl InnerHelper {
    /// Waits for something to happen and deals with it. Returns whether there may be more.
    fn turn(&mut self) -> io::Result<bool> {
        let (has_input, has_child) = self.wait()?;
        if has_input && !self.read()? {
            return Ok(false);
        }
        if has_child {
            while self.signals.read_signal()?.is_some() {}
        }
        while let Some(PipeFrame { kind, payload }) = self.arrived.next()? {
            self.take(kind, payload)?;
        }
        let has_room = self.has_room();
        if has_room {
            self.accept()?;
            let frames = self.relays.advance()?;
            self.unsent.extend(frames);
        }
        let done = match &mut self.step {
            Some(step) => step.advance(&mut self.unsent, has_room)?,
            None => None,
        };
        if let Some(reply) = done {
            (self.step, self.door) = (None, None);
            self.relays.close();
            self.send(FrameKind::Reply, &serde_json::to_vec(&reply)?)?;
        }
        self.flush()?;
        Ok(true)
    }

    /// Waits for input, the end of a child, and what the command that runs waits for.
    fn wait(&self) -> io::Result<(bool, bool)> {
        let mut sources = vec![
            PollFd::new(self.input.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
        ];
        if !self.unsent.is_empty() {
            sources.push(PollFd::new(self.output.as_fd(), PollFlags::POLLOUT));
        }
        if self.has_room() {
            let door = self.door.as_ref().filter(|_| self.relays.len() < RELAYS_MAX);
            sources.extend(door.map(|door| PollFd::new(door.as_fd(), PollFlags::POLLIN)));
            sources.extend(self.relays.sources().map(|(socket, flags)| PollFd::new(socket, flags)));
            let pipes = self.step.iter().flat_map(InnerStep::sources);
            sources.extend(pipes.map(|(pipe, flags)| PollFd::new(pipe, flags)));
        }
        let mut timeout = PollTimeout::NONE;
        if let Some(remaining) = self.step.as_ref().and_then(InnerStep::remaining) {
            // Rounded up, so that the deadline has passed then.
            let wait = remaining + Duration::from_millis(1);
            timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
        }
        match poll(&mut sources, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |at: usize| sources.get(at).is_some_and(|source| source.any() == Some(true));
        Ok((is_ready(0), is_ready(1)))
    }

    /// Takes the connections that the command has made.
    fn accept(&mut self) -> io::Result<()> {
        while let Some(door) = self.door.as_ref().filter(|_| self.relays.len() < RELAYS_MAX) {
            let Ok((socket, _)) = door.accept() else { break };
            let opened = self.relays.open(socket)?;
            self.unsent.extend(opened);
        }
        Ok(())
    }

    /// Reads what has arrived. Returns false at the end.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let count = self.input.read(&mut buffer)?;
        self.arrived.add(buffer.get(..count).unwrap_or_default());
        Ok(count > 0)
    }

    fn take(&mut self, kind: FrameKind, payload: Vec<u8>) -> io::Result<()> {
        match (kind, &mut self.step) {
            (FrameKind::Kill, Some(step)) => step.cancel(),
            // The command ended meanwhile.
            (FrameKind::Kill, None) => {}
            (FrameKind::Stdin, None) if self.stdin.len() + payload.len() <= STDIN_BYTES_MAX => {
                self.stdin.extend(payload);
            }
            (kind, _) if kind.is_relayed() => self.relays.take(kind, &payload)?,
            (FrameKind::Order, None) => self.obey(serde_json::from_slice(&payload)?)?,
            _ => return Err(io::Error::other("an unexpected frame")),
        }
        Ok(())
    }

    fn obey(&mut self, order: ContainerOrder) -> io::Result<()> {
        let stdin = std::mem::take(&mut self.stdin);
        let reply = match order {
            ContainerOrder::Run { step, timeout_ms, is_relayed } => {
                let door = is_relayed.then(open_door).transpose();
                let begun = door.map_err(|error| failed("listen", &error)).and_then(|door| {
                    let step = begin(&step, stdin, Duration::from_millis(timeout_ms))?;
                    Ok((step, door))
                });
                match begun {
                    Ok((step, door)) => {
                        (self.step, self.door) = (Some(step), door);
                        return Ok(());
                    }
                    Err(reply) => reply,
                }
            }
            ContainerOrder::TakeOver { path, uid, gid } => match take_over(&path, uid, gid) {
                Ok(()) => StepReply::Ended(EndedStep::default()),
                Err(error) => failed("take over", &error),
            },
            ContainerOrder::Read { path } => match read_file(&path) {
                Ok(content) => {
                    for part in content.chunks(DATA_BYTES_MAX) {
                        self.unsent.extend(frame(FrameKind::Stdout, part)?);
                    }
                    StepReply::Ended(EndedStep::default())
                }
                Err(error) => failed("read", &error),
            },
        };
        let reply = ContainerReply { reply, stopped: None, events: LimitEvents::default() };
        self.send(FrameKind::Reply, &serde_json::to_vec(&reply)?)
    }

    /// Sends a frame when the pipe takes it.
    fn send(&mut self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        self.unsent.extend(frame(kind, payload)?);
        self.flush()
    }

    /// Writes what the pipe takes at once.
    fn flush(&mut self) -> io::Result<()> {
        let mut written = 0;
        while let Some(left) = self.unsent.get(written..).filter(|left| !left.is_empty()) {
            match self.output.write(left) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.unsent.drain(..written);
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.unsent.len() <= UNSENT_BYTES_MAX
    }
}

/// The signal that tells of the end of a child.
fn child_signals() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals
}

/// Starts the command of `order`.
fn begin(order: &StepOrder, stdin: Vec<u8>, timeout: Duration) -> Result<InnerStep, StepReply> {
    if let Err(error) = std::env::set_current_dir(&order.cwd) {
        return Err(StepReply::BadCwd { errno: errno_of(&error) });
    }
    // The command would inherit it blocked, and a shell would wait for its children for ever. An end in between is
    // seen when the dead are reaped.
    let children = child_signals();
    let unblocked = children.thread_unblock();
    let started = InnerStep::start(order, stdin, timeout);
    if let Err(errno) = unblocked.and_then(|()| children.thread_block()) {
        return Err(StepReply::Failed { step: "signals".to_owned(), errno: errno as i32 });
    }
    // So that the directory can be removed.
    let _ = std::env::set_current_dir("/");
    started.map_err(|error| StepReply::NotExecuted { errno: errno_of(&error) })
}

/// Listens where commands look for the proxy. Nothing else in the container is alive.
fn open_door() -> io::Result<TcpListener> {
    let door = TcpListener::bind((Ipv4Addr::LOCALHOST, EGRESS_PORT))?;
    door.set_nonblocking(true)?;
    Ok(door)
}

fn failed(step: &str, error: &io::Error) -> StepReply {
    StepReply::Failed { step: step.to_owned(), errno: errno_of(error) }
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EINVAL)
}
