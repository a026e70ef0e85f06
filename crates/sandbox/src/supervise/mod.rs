//! Supervises one sandbox with one poll loop, from its clone to its death.

pub(crate) mod classify;
pub(crate) mod cleanup;
pub(crate) mod control;
pub(crate) mod cpu_watch;
pub(crate) mod io;
pub(crate) mod kill;
pub(crate) mod kill_count;
pub(crate) mod observation;
pub(crate) mod report;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::cgroup::SandboxGroup;
use super::locks::LockWatch;
use crate::launch::handshake::StatusPipe;
use crate::launch::process::InitProcess;
use crate::supervise::classify::KillReason;
use crate::supervise::control::{Controls, MainProcess};
use crate::supervise::cpu_watch::CpuWatch;
use crate::supervise::io::{IoThread, IoTokens, StdioPipes};
use crate::supervise::observation::Observation;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{Limits, OutputSink, Watch};

/// How long the creation of a sandbox may take, from clone to exec.
pub const SETUP_WAIT: Duration = Duration::from_secs(10);
/// How long a sandbox whose program has ended may take to die by itself before it is killed.
const LINGERING_MAX: Duration = Duration::from_millis(20);
/// How long a client may have closed its sending side before it counts as gone. A client that
/// half-closes its connection still reads the response of a short run.
const HANGUP_GRACE: Duration = Duration::from_millis(100);

/// The parts of a live sandbox that the loop works with.
#[derive(Debug)]
pub struct Supervised<'a> {
    /// The init.
    pub process: &'a InitProcess,
    /// The program's own process, if the sandbox goes on after it.
    pub program: Option<BorrowedFd<'a>>,
    /// The cgroup, where there is one: the program's own, if the sandbox goes on after it.
    pub group: Option<&'a SandboxGroup>,
    /// The status pipe of the init.
    pub status: StatusPipe,
    /// The listener for file lock calls.
    pub locks: LockWatch<'a>,
    /// The socket that resumed the program.
    pub release: BorrowedFd<'a>,
    /// Our end of the terminal, if the program has one.
    pub terminal: Option<&'a Arc<OwnedFd>>,
    /// The limits of the run.
    pub limits: &'a Limits,
    /// Since when the run counts, if its program was started before.
    pub released: Option<Released>,
}

/// What a run that goes on in a prestarted program counts from.
#[derive(Debug, Clone, Copy)]
pub struct Released {
    /// When it was released.
    pub at: Instant,
    /// The CPU time that the sandbox had used by then.
    pub cpu: Duration,
}

/// Supervises the sandbox until no process in it is alive; a program in a sandbox that goes on, until
/// its main process has ended, and where it is killed until all that it started is dead.
pub fn supervise(
    parts: &mut Supervised<'_>,
    streams: &mut StdioPipes,
    watch: &Watch,
    sink: &mut Option<Box<dyn OutputSink>>,
) -> std::io::Result<Observation> {
    let tokens = IoTokens::new()?;
    let own = || MainProcess::FirstChildOf(parts.process);
    let main = parts.program.map_or_else(own, MainProcess::Known);
    let mut state = SuperviseLoop {
        observed: Observation {
            started: parts.released.map(|released| released.at),
            ..Observation::default()
        },
        setup: Deadline::after(SETUP_WAIT),
        client: ClientState::of(watch),
        cpu: CpuWatch::new(parts.limits.cpu_total_max, parts.released.map(|released| released.cpu)),
        controls: Controls::new(watch.control.as_ref(), Some(main), parts.release, parts.terminal),
    };
    let overflowed = thread::scope(|scope| {
        let mut io_thread = IoThread::new(scope, &tokens, streams, sink);
        let result = state.run(parts, watch, &tokens.overflowed, &mut io_thread);
        state.observed.dead = match parts.program {
            None => state.end_sandbox(parts, result.is_err()),
            Some(_) => state.end_program(parts, result.is_err()),
        };
        let overflowed = io_thread.finish();
        result.and(overflowed)
    })?;
    state.listen(parts)?;
    if overflowed {
        state.observed.note_overflow();
    }
    Ok(state.observed)
}

/// Whether the client of the run is still there.
#[derive(Debug)]
enum ClientState {
    /// Not watched, or known to be gone.
    Unwatched,
    /// Both sides are open.
    Open,
    /// Its sending side is closed. It counts as gone at the deadline.
    HalfClosed(Deadline),
}

impl ClientState {
    fn of(watch: &Watch) -> Self {
        if watch.client.is_some() { Self::Open } else { Self::Unwatched }
    }
}

/// The event that a poll entry reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SuperviseEvent {
    Process,
    Status,
    Overflow,
    Cancel,
    Client,
    /// A call on the listener for file locks, before its thread is started.
    Locks,
    /// The listener closed: the last process that could call has ended.
    LocksEnded,
    /// Output on stdout or stderr, before the io thread is started.
    Output,
    /// An order to the run.
    Order,
    /// The program's process has closed its socket: with exec, or with its end.
    Exec,
}

struct SuperviseLoop<'watch> {
    observed: Observation,
    setup: Deadline,
    client: ClientState,
    cpu: CpuWatch,
    controls: Controls<'watch>,
}

impl SuperviseLoop<'_> {
    /// Kills the sandbox, if it does not die by itself. Returns whether it is dead.
    fn end_sandbox(&mut self, parts: &Supervised<'_>, has_failed: bool) -> bool {
        // With a CPU quota the sandbox dies slowly when only its init ends. A kill lifts the quota.
        if has_failed || self.observed.must_die() || parts.limits.cpus_milli_max.is_some() {
            kill::end(parts.process, parts.group);
        } else if !kill::dies_within(parts.process, LINGERING_MAX) {
            // The remaining processes are dying, but on a busy host as slowly as they ran.
            kill::end(parts.process, parts.group);
        }
        self.controls.release(parts.group);
        // A sandbox that does not die is counted in `wait_dead` and keeps its resources (see
        // `cleanup`).
        kill::wait_dead(parts.process, kill::KILL_WAIT)
    }

    /// Kills all that the program started, if it must die; what it left goes on otherwise. Returns
    /// whether all is as it should be.
    fn end_program(&mut self, parts: &Supervised<'_>, has_failed: bool) -> bool {
        let Some(group) = parts.group else { return false };
        self.controls.release(parts.group);
        let has_ended = self.observed.ended.is_some();
        let must_die = has_failed
            || !has_ended
            || self.observed.must_die()
            || self.controls.has_asked_to_end()
            // A program that memory ran out for dies as a whole.
            || group.oom_kills() > 0;
        !must_die || kill::end_group(group, Deadline::after(kill::KILL_WAIT))
    }

    /// Runs until the init is dead or must be killed.
    fn run(
        &mut self,
        parts: &mut Supervised<'_>,
        watch: &Watch,
        overflow: &CancelToken,
        io_thread: &mut IoThread<'_, '_>,
    ) -> std::io::Result<()> {
        loop {
            let (ready, hangup) = self.wait(parts, watch, overflow, io_thread)?;
            // Read the status first: it outranks a deadline that passes in the same turn.
            if ready.contains(&SuperviseEvent::Status) {
                self.listen(parts)?;
            }
            if self.observed.started.is_some() {
                if io_thread.is_due() || self.has_output(&ready) {
                    io_thread.start()?;
                }
                self.cpu.program_began(parts.group);
                self.controls.program_began();
                parts.locks.program_began()?;
                if ready.contains(&SuperviseEvent::LocksEnded) {
                    parts.locks.end();
                }
                if ready.contains(&SuperviseEvent::Locks) {
                    io_thread.beside(|scope, dead| parts.locks.start(scope, dead))?;
                }
            }
            if ready.contains(&SuperviseEvent::Overflow) {
                self.observed.note_overflow();
            }
            if ready.contains(&SuperviseEvent::Cancel) {
                self.observed.note_kill(KillReason::Cancelled);
            }
            if ready.contains(&SuperviseEvent::Exec) {
                // What was reported before the hang-up is in the pipe by now.
                self.listen(parts)?;
                self.controls.exec_is_over(&self.observed);
            }
            if ready.contains(&SuperviseEvent::Order) {
                self.controls.obey(parts.group, &mut self.observed);
            }
            if let Some(flags) = hangup {
                self.client_moved(flags);
            }
            self.look_at_clocks(parts);
            // Once the program has ended, its remaining processes must die within the time a killed
            // sandbox has.
            let ended = self.observed.ended.is_some();
            if ready.contains(&SuperviseEvent::Process) || self.observed.must_die() || ended {
                return Ok(());
            }
        }
    }

    /// Waits for the next events. The flags of the client's socket are returned apart because they
    /// say more than "ready".
    fn wait(
        &mut self,
        parts: &Supervised<'_>,
        watch: &Watch,
        overflow: &CancelToken,
        io_thread: &IoThread<'_, '_>,
    ) -> std::io::Result<(Vec<SuperviseEvent>, Option<PollFlags>)> {
        let (sources, mut fds) = self.interests(parts, watch, overflow, io_thread);
        let timeout = TimeSpec::from_duration(self.next_wake(parts.limits));
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok((Vec::new(), None)),
            Err(errno) => return Err(errno.into()),
        }
        // nix has no name for POLLRDHUP and returns `None` for it: an event did happen.
        let happened = fds.iter().map(|fd| fd.revents().unwrap_or(PollFlags::POLLIN));
        let mut hangup = None;
        let mut ready = Vec::with_capacity(sources.len());
        for (source, flags) in sources.into_iter().zip(happened) {
            match source {
                _ if flags.is_empty() => {}
                SuperviseEvent::Client => hangup = Some(flags),
                SuperviseEvent::Locks if !flags.contains(PollFlags::POLLIN) => {
                    ready.push(SuperviseEvent::LocksEnded);
                }
                _ => ready.push(source),
            }
        }
        Ok((ready, hangup))
    }

    fn interests<'fds>(
        &'fds self,
        parts: &'fds Supervised<'_>,
        watch: &'fds Watch,
        overflow: &'fds CancelToken,
        io_thread: &'fds IoThread<'_, '_>,
    ) -> (Vec<SuperviseEvent>, Vec<PollFd<'fds>>) {
        let mut sources = Vec::with_capacity(8);
        let mut fds = Vec::with_capacity(8);
        let mut add = |source, fd: Option<BorrowedFd<'fds>>, flags| {
            if let Some(fd) = fd {
                sources.push(source);
                fds.push(PollFd::new(fd, flags));
            }
        };
        add(SuperviseEvent::Process, Some(parts.process.pidfd.as_fd()), PollFlags::POLLIN);
        add(SuperviseEvent::Status, parts.status.pipe(), PollFlags::POLLIN);
        add(SuperviseEvent::Cancel, Some(watch.cancel.as_fd()), PollFlags::POLLIN);
        add(SuperviseEvent::Overflow, Some(overflow.as_fd()), PollFlags::POLLIN);
        if self.observed.started.is_some() {
            for pipe in io_thread.unread() {
                add(SuperviseEvent::Output, pipe, PollFlags::POLLIN);
            }
        }
        add(SuperviseEvent::Locks, parts.locks.listener(), PollFlags::POLLIN);
        add(SuperviseEvent::Order, self.controls.orders(), PollFlags::POLLIN);
        if let Some((socket, flags)) = self.controls.until_exec() {
            add(SuperviseEvent::Exec, Some(socket), flags);
        }
        let client = watch.client.as_ref().map(AsFd::as_fd);
        match self.client {
            ClientState::Unwatched => {}
            ClientState::Open => {
                add(SuperviseEvent::Client, client, PollFlags::from_bits_retain(libc::POLLRDHUP));
            }
            // The kernel always reports errors and full hang-ups; the half-close is known already.
            ClientState::HalfClosed(_) => add(SuperviseEvent::Client, client, PollFlags::empty()),
        }
        (sources, fds)
    }

    /// Whether there is output to read while the program is still running.
    fn has_output(&self, ready: &[SuperviseEvent]) -> bool {
        ready.contains(&SuperviseEvent::Output) && self.observed.ended.is_none()
    }

    /// Records every message that has arrived.
    fn listen(&mut self, parts: &mut Supervised<'_>) -> std::io::Result<()> {
        while let Some(message) = parts.status.next()? {
            self.observed.record(message);
        }
        Ok(())
    }

    fn client_moved(&mut self, flags: PollFlags) {
        if flags.intersects(PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL) {
            self.client = ClientState::Unwatched;
            self.observed.note_kill(KillReason::Cancelled);
        } else if matches!(self.client, ClientState::Open) {
            self.client = ClientState::HalfClosed(Deadline::after(HANGUP_GRACE));
        }
    }

    /// Notes which time limit has passed, if any.
    fn look_at_clocks(&mut self, parts: &Supervised<'_>) {
        if self.observed.ended.is_some() {
            return;
        }
        self.controls.look(parts.group, &mut self.observed);
        let Some(started) = self.observed.started else {
            self.observed.setup_timed_out = self.setup.passed();
            return;
        };
        if Deadline::at(started, parts.limits.wall).passed() {
            self.observed.note_kill(KillReason::WallTime);
        }
        if matches!(self.client, ClientState::HalfClosed(gone) if gone.passed()) {
            self.client = ClientState::Unwatched;
            self.observed.note_kill(KillReason::Cancelled);
        }
        if self.cpu.limit_reached(parts.group) {
            self.observed.note_kill(KillReason::CpuTime);
        }
    }

    /// How long to wait at most: until then no time limit can pass.
    fn next_wake(&self, limits: &Limits) -> Duration {
        let Some(started) = self.observed.started else { return self.setup.remaining() };
        if self.observed.ended.is_some() {
            // Only the end of the init is missing.
            return kill::KILL_WAIT;
        }
        let mut wake = Deadline::at(started, limits.wall).remaining();
        if let ClientState::HalfClosed(gone) = self.client {
            wake = wake.min(gone.remaining());
        }
        if let Some(look) = self.cpu.next_check() {
            wake = wake.min(look.remaining());
        }
        self.controls.next_wake().map_or(wake, |due| wake.min(due))
    }
}
