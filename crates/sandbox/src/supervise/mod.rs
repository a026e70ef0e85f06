//! One poll loop from a cloned box to a dead one.

pub(crate) mod capture;
pub(crate) mod classify;
pub(crate) mod cleanup;
pub(crate) mod cpu_watch;
pub(crate) mod holdings;
pub(crate) mod kill;
pub(crate) mod pipe;
pub(crate) mod report;
pub(crate) mod undying;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use super::cgroup::BoxGroup;
use super::locks::LockWatch;
use crate::launch::handshake::{Message, ProgramStatus, StatusPipe};
use crate::launch::process::InitProcess;
use crate::supervise::capture::{Pumping, Streams, Tokens};
use crate::supervise::classify::Cut;
use crate::supervise::cpu_watch::CpuWatch;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{Limits, OutputSink, Watch};

/// How long a box may take to be made, from clone to exec.
pub const SETUP_WAIT: Duration = Duration::from_secs(10);
/// How long a box whose program has ended may take to die by itself before it is killed.
const LINGERING_MAX: Duration = Duration::from_millis(20);
/// How long a client may have closed its sending side before that counts as
/// gone: one that only half-closed still reads a short run's answer.
const HANGUP_GRACE: Duration = Duration::from_millis(100);

/// The live parts of a box that the loop looks after.
#[derive(Debug)]
pub struct Supervised<'a> {
    /// The init.
    pub process: &'a InitProcess,
    /// The cgroup, where there is one.
    pub group: Option<&'a BoxGroup>,
    /// What the init says.
    pub status: StatusPipe,
    /// The calls for file locks.
    pub locks: LockWatch<'a>,
    /// The bounds.
    pub limits: &'a Limits,
}

/// What the loop learned.
#[derive(Debug, Default)]
pub struct Observed {
    /// When the program was about to exec.
    pub started: Option<Instant>,
    /// How the program ended by itself, and when.
    pub ended: Option<(ProgramStatus, Instant)>,
    /// Why we ended the box.
    pub cut: Option<(Cut, Instant)>,
    /// The first step that failed, and its errno.
    pub failed: Option<(u32, i32)>,
    /// Whether the box took longer to make than it may.
    pub setup_timed_out: bool,
    /// Whether nothing of the box is alive.
    pub dead: bool,
}

/// Looks after the box until nothing in it is alive.
pub fn supervise(
    parts: &mut Supervised<'_>,
    streams: &mut Streams,
    watch: &Watch,
    sink: &mut Option<Box<dyn OutputSink>>,
) -> io::Result<Observed> {
    let tokens = Tokens::new()?;
    let mut turn = Loop {
        observed: Observed::default(),
        setup: Deadline::after(SETUP_WAIT),
        client: Client::of(watch),
        cpu: CpuWatch::new(parts.limits.cpu_total_max),
    };
    let overflowed = thread::scope(|scope| {
        let mut pumping = Pumping::new(scope, &tokens, streams, sink);
        let result = turn.run(parts, watch, &tokens.overflowed, &mut pumping);
        // A box with a share of a CPU would take its time to die of its init's end; a kill lifts it.
        if result.is_err() || turn.observed.must_die() || parts.limits.cpus_milli_max.is_some() {
            kill::end(parts.process, parts.group);
        } else if !kill::dies_within(parts.process, LINGERING_MAX) {
            // What its end leaves is dying, but on a busy host as slowly as it ran.
            kill::end(parts.process, parts.group);
        }
        // One that does not die is counted there, and keeps what it holds (`holdings.rs`).
        turn.observed.dead = kill::wait_dead(parts.process, kill::KILL_WAIT);
        let overflowed = pumping.finish();
        result.and(overflowed)
    })?;
    turn.listen(parts)?;
    if overflowed {
        turn.observed.overflowed();
    }
    Ok(turn.observed)
}

impl Observed {
    /// Takes the init's word. The first of its kind stands: a second `READY` must not move the
    /// time limit. PID 1 and the program's process may speak at the same time, so one may still
    /// come after a failure, and nothing starts then; nothing comes after an end.
    pub fn hear(&mut self, message: Message) {
        if self.ended.is_some() {
            return;
        }
        match message {
            // Of those who make it ahead.
            Message::Prepared => {}
            Message::Ready { at_ns } => {
                if self.failed.is_none() {
                    self.started.get_or_insert_with(|| instant_of(at_ns));
                }
            }
            Message::Failed { step, errno } => {
                self.failed.get_or_insert((step, errno));
            }
            Message::Ended { status, at_ns } => {
                self.ended.get_or_insert((status, instant_of(at_ns)));
            }
        }
    }

    /// Whether the program ended by itself, with 0.
    pub fn ended_well(&self) -> bool {
        self.cut.is_none()
            && self.ended.is_some_and(|(status, _)| status == ProgramStatus::Exited(0))
    }

    /// Whether the program ran, and nothing of it does any more.
    pub fn has_run(&self) -> bool {
        self.started.is_some() && self.failed.is_none() && self.dead
    }

    fn must_die(&self) -> bool {
        self.cut.is_some() || self.failed.is_some() || self.setup_timed_out
    }

    fn cut(&mut self, cut: Cut) {
        // The first reason stands, and none does once the program has ended.
        if self.cut.is_none() && self.ended.is_none() {
            self.cut = Some((cut, Instant::now()));
        }
    }

    /// Even a program that has ended by now wrote more than it may.
    fn overflowed(&mut self) {
        if self.cut.is_none() {
            self.cut = Some((Cut::Output, Instant::now()));
        }
    }
}

/// The client's socket as far as its going away concerns us.
#[derive(Debug)]
enum Client {
    /// Not watched, or already known to be gone.
    Unwatched,
    /// Both sides open.
    Open,
    /// Its sending side is closed; at the deadline it counts as gone.
    HalfClosed(Deadline),
}

impl Client {
    fn of(watch: &Watch) -> Self {
        if watch.client.is_some() { Self::Open } else { Self::Unwatched }
    }
}

/// What a poll entry stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Process,
    Status,
    Overflow,
    Cancel,
    Client,
    /// The listener for file locks, which no thread has yet.
    Locks,
    /// The same, when the last process that could call has ended.
    LocksEnded,
    /// Standard output or standard error, which nobody reads yet.
    Output,
}

struct Loop {
    observed: Observed,
    setup: Deadline,
    client: Client,
    cpu: CpuWatch,
}

impl Loop {
    /// Turns until the init is dead or has to be.
    fn run(
        &mut self,
        parts: &mut Supervised<'_>,
        watch: &Watch,
        overflow: &CancelToken,
        pumping: &mut Pumping<'_, '_>,
    ) -> io::Result<()> {
        loop {
            let (ready, hangup) = self.wait(parts, watch, overflow, pumping)?;
            // What the init said comes first: a status outranks a deadline met in the same turn.
            if ready.contains(&Source::Status) {
                self.listen(parts)?;
            }
            if self.observed.started.is_some() {
                if pumping.is_due() || self.has_output(&ready) {
                    pumping.start()?;
                }
                self.cpu.program_began(parts.group);
                parts.locks.program_began()?;
                if ready.contains(&Source::LocksEnded) {
                    parts.locks.end();
                }
                if ready.contains(&Source::Locks) {
                    pumping.beside(|scope, dead| parts.locks.start(scope, dead))?;
                }
            }
            if ready.contains(&Source::Overflow) {
                self.observed.overflowed();
            }
            if ready.contains(&Source::Cancel) {
                self.observed.cut(Cut::Cancelled);
            }
            if let Some(flags) = hangup {
                self.client_moved(flags);
            }
            self.look_at_clocks(parts);
            // Once the program has ended what it left has to go, and to be waited for no longer
            // than anything that is killed.
            let ended = self.observed.ended.is_some();
            if ready.contains(&Source::Process) || self.observed.must_die() || ended {
                return Ok(());
            }
        }
    }

    /// Waits for the next event; the client's flags come apart, they mean more than "ready".
    fn wait(
        &mut self,
        parts: &Supervised<'_>,
        watch: &Watch,
        overflow: &CancelToken,
        pumping: &Pumping<'_, '_>,
    ) -> io::Result<(Vec<Source>, Option<PollFlags>)> {
        let (sources, mut fds) = self.interests(parts, watch, overflow, pumping);
        let timeout = TimeSpec::from_duration(self.next_wake(parts.limits));
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok((Vec::new(), None)),
            Err(errno) => return Err(errno.into()),
        }
        // The wrapper gives none for POLLRDHUP, which it has no name for: something did happen.
        let happened = fds.iter().map(|fd| fd.revents().unwrap_or(PollFlags::POLLIN));
        let mut hangup = None;
        let mut ready = Vec::with_capacity(sources.len());
        for (source, flags) in sources.into_iter().zip(happened) {
            match source {
                _ if flags.is_empty() => {}
                Source::Client => hangup = Some(flags),
                Source::Locks if !flags.contains(PollFlags::POLLIN) => {
                    ready.push(Source::LocksEnded);
                }
                _ => ready.push(source),
            }
        }
        Ok((ready, hangup))
    }

    fn interests<'fds>(
        &self,
        parts: &'fds Supervised<'_>,
        watch: &'fds Watch,
        overflow: &'fds CancelToken,
        pumping: &'fds Pumping<'_, '_>,
    ) -> (Vec<Source>, Vec<PollFd<'fds>>) {
        let mut sources = Vec::with_capacity(8);
        let mut fds = Vec::with_capacity(8);
        let mut add = |source, fd: Option<BorrowedFd<'fds>>, flags| {
            if let Some(fd) = fd {
                sources.push(source);
                fds.push(PollFd::new(fd, flags));
            }
        };
        add(Source::Process, Some(parts.process.pidfd.as_fd()), PollFlags::POLLIN);
        add(Source::Status, parts.status.pipe(), PollFlags::POLLIN);
        add(Source::Cancel, Some(watch.cancel.as_fd()), PollFlags::POLLIN);
        add(Source::Overflow, Some(overflow.as_fd()), PollFlags::POLLIN);
        if self.observed.started.is_some() {
            for pipe in pumping.unread() {
                add(Source::Output, pipe, PollFlags::POLLIN);
            }
        }
        add(Source::Locks, parts.locks.listener(), PollFlags::POLLIN);
        let client = watch.client.as_ref().map(AsFd::as_fd);
        match self.client {
            Client::Unwatched => {}
            Client::Open => {
                add(Source::Client, client, PollFlags::from_bits_retain(libc::POLLRDHUP));
            }
            // Errors and full hang-ups are told unasked; the half-close is known.
            Client::HalfClosed(_) => add(Source::Client, client, PollFlags::empty()),
        }
        (sources, fds)
    }

    /// Whether there is something to read, and a program to go on writing.
    fn has_output(&self, ready: &[Source]) -> bool {
        ready.contains(&Source::Output) && self.observed.ended.is_none()
    }

    /// Takes every message that has arrived.
    fn listen(&mut self, parts: &mut Supervised<'_>) -> io::Result<()> {
        while let Some(message) = parts.status.next()? {
            self.observed.hear(message);
        }
        Ok(())
    }

    fn client_moved(&mut self, flags: PollFlags) {
        if flags.intersects(PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL) {
            self.client = Client::Unwatched;
            self.observed.cut(Cut::Cancelled);
        } else if matches!(self.client, Client::Open) {
            self.client = Client::HalfClosed(Deadline::after(HANGUP_GRACE));
        }
    }

    /// Ends the box when one of its times is up.
    fn look_at_clocks(&mut self, parts: &Supervised<'_>) {
        if self.observed.ended.is_some() {
            return;
        }
        let Some(started) = self.observed.started else {
            self.observed.setup_timed_out = self.setup.passed();
            return;
        };
        if Deadline::at(started, parts.limits.wall).passed() {
            self.observed.cut(Cut::WallTime);
        }
        if matches!(self.client, Client::HalfClosed(gone) if gone.passed()) {
            self.client = Client::Unwatched;
            self.observed.cut(Cut::Cancelled);
        }
        if self.cpu.limit_reached(parts.group) {
            self.observed.cut(Cut::CpuTime);
        }
    }

    /// How long nothing can become due.
    fn next_wake(&self, limits: &Limits) -> Duration {
        let Some(started) = self.observed.started else { return self.setup.remaining() };
        if self.observed.ended.is_some() {
            // Only the init's own end is missing.
            return kill::KILL_WAIT;
        }
        let mut wake = Deadline::at(started, limits.wall).remaining();
        if let Client::HalfClosed(gone) = self.client {
            wake = wake.min(gone.remaining());
        }
        if let Some(look) = self.cpu.next_look() {
            wake = wake.min(look.remaining());
        }
        wake
    }
}

/// The instant at which `CLOCK_MONOTONIC` read `at_ns`, the clock instants are of.
fn instant_of(at_ns: u64) -> Instant {
    let now = Instant::now();
    let Ok(clock) = clock_gettime(ClockId::CLOCK_MONOTONIC) else { return now };
    let ago = Duration::from(clock).saturating_sub(Duration::from_nanos(at_ns));
    now.checked_sub(ago).unwrap_or(now)
}
