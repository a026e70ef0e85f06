//! The thread of a sandbox that lasts: the sandbox dies with it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::left::LeftProgram;
use super::{SharedSandbox, SharedState};
use crate::cgroup::SandboxGroup;
use crate::locks::LockWatch;
use crate::supervise::cleanup::live_sandbox::LiveSandbox;
use crate::supervise::control::Controls;
use crate::supervise::kill;
use crate::supervise::observation::Observation;
use cofferdam_core::Watch;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;

/// How long programs may take to note that their sandbox is dead.
const PROGRAMS_WAIT: Duration = Duration::from_secs(5);
/// How long the kernel may take to remove an empty group.
const GROUP_WAIT: Duration = Duration::from_secs(2);
/// The first pause before a look for a process that the kernel killed once memory had run out.
const SHORTAGE_LOOK: Duration = Duration::from_millis(1);
/// The last such pause: each is twice the one before. The end of a group counts as a shortage too.
const SHORTAGE_LOOK_MAX: Duration = Duration::from_millis(200);

/// A sandbox that lasts, with all that it holds. Dropped, it is killed.
#[derive(Debug)]
pub struct KeptSandbox {
    pub(super) shared: SharedSandbox,
    pub(super) live: LiveSandbox,
    pub(super) init_group: SandboxGroup,
    /// The listener for file locks.
    pub(super) listener: Option<OwnedFd>,
    /// Ends the thread that answers it.
    pub(super) dead: CancelToken,
    /// What serves its socket, if it may reach something.
    pub(super) egress: Option<Retained>,
}

/// The event that a poll entry reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeeperEvent {
    Process,
    Cancel,
    Order,
    Alarm,
    Shortage,
    /// A call on the listener for file locks, before its thread is started.
    Locks,
    /// What a program left.
    Left,
}

/// What the loop knows.
struct KeeperLoop<'a> {
    shared: &'a SharedState,
    all: Arc<SandboxGroup>,
    controls: Controls<'a>,
    observed: Observation,
    left: Vec<LeftProgram>,
    /// When programs are looked at next that the kernel may have killed a process of, and the pause
    /// after that.
    shortage: Option<(Deadline, Duration)>,
}

impl KeptSandbox {
    /// What other threads use it by.
    pub fn handle(&self) -> SharedSandbox {
        self.shared.clone()
    }

    /// Keeps the sandbox until it is dead, which it is soon after `watch` is cancelled. The control of
    /// `watch` freezes and thaws all programs.
    pub fn keep(self, watch: &Watch) {
        let Self { shared, live, mut init_group, listener, dead, egress } = self;
        let state = &*shared.0;
        if let Some(all) = state.all() {
            let served = thread::scope(|scope| {
                let control = watch.control.as_ref();
                let mut served = KeeperLoop {
                    shared: state,
                    all,
                    controls: Controls::new(control, None, state.alarm.as_fd(), None),
                    observed: Observation::default(),
                    left: Vec::new(),
                    shortage: None,
                };
                let mut locks = LockWatch::of(listener, state.tenant);
                let start = |locks: &mut LockWatch<'_>| locks.start(scope, &dead);
                let result = served.run(watch, &mut locks, start);
                state.is_over.store(true, Ordering::Release);
                served.controls.release(Some(&served.all));
                kill::end(&live.process, live.resources.group.as_ref());
                // Else it is kept, with all that it holds.
                kill::wait_dead(&live.process, kill::KILL_WAIT);
                dead.cancel();
                result
            });
            if let Err(error) = served {
                log::error!("keep sandbox {}: {error}", live.process.pid);
            }
        }
        // Before the programs report, which then includes all that went out.
        drop(egress);
        state.wait_ended(PROGRAMS_WAIT);
        drop(state.spare.lock().unwrap_or_else(PoisonError::into_inner).take());
        // Those of the programs that have just ended, then those above them.
        state.arrived.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for (_, entry) in std::mem::take(&mut *state.programs()) {
            remove(&entry.group);
        }
        if let Some(all) = state.all.lock().unwrap_or_else(PoisonError::into_inner).take() {
            remove(&all);
        }
        if let Err(error) = init_group.remove(Deadline::after(GROUP_WAIT)) {
            log::error!("cgroup: {error}");
        }
        drop(live);
    }
}

impl KeeperLoop<'_> {
    /// Serves until the sandbox is dead or must die.
    fn run<'l>(
        &mut self,
        watch: &Watch,
        locks: &mut LockWatch<'l>,
        start: impl Fn(&mut LockWatch<'l>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        loop {
            let ready = self.wait(watch, locks)?;
            if ready.contains(&KeeperEvent::Process) || ready.contains(&KeeperEvent::Cancel) {
                return Ok(());
            }
            if ready.contains(&KeeperEvent::Locks) {
                start(locks)?;
            }
            if ready.contains(&KeeperEvent::Order) {
                self.controls.obey(Some(&self.all), &mut self.observed);
            }
            let rings = ready.contains(&KeeperEvent::Alarm);
            if rings {
                self.shared.alarm.stop();
            }
            if ready.contains(&KeeperEvent::Shortage) {
                let _ = self.shared.shortage.read();
                self.shortage = Some((Deadline::after(Duration::ZERO), SHORTAGE_LOOK));
            }
            self.controls.look(Some(&self.all), &mut self.observed);
            self.kill_short_of_memory();
            self.serve_left();
            if rings {
                self.shared.make_spare(&self.all);
            }
            if self.observed.must_die() {
                return Ok(());
            }
        }
    }

    fn wait(&self, watch: &Watch, locks: &LockWatch<'_>) -> std::io::Result<Vec<KeeperEvent>> {
        let mut sources = vec![
            (KeeperEvent::Process, self.shared.process.pidfd.as_fd()),
            (KeeperEvent::Cancel, watch.cancel.as_fd()),
            (KeeperEvent::Alarm, self.shared.alarm.as_fd()),
            (KeeperEvent::Shortage, self.shared.shortage.as_fd()),
        ];
        sources.extend(self.controls.orders().map(|orders| (KeeperEvent::Order, orders)));
        sources.extend(locks.listener().map(|listener| (KeeperEvent::Locks, listener)));
        let left = self.left.iter().flat_map(LeftProgram::descriptors);
        sources.extend(left.map(|fd: BorrowedFd<'_>| (KeeperEvent::Left, fd)));
        let mut fds: Vec<PollFd<'_>> =
            sources.iter().map(|(_, fd)| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        let timeout = self.next_wake().map(TimeSpec::from_duration);
        match ppoll(&mut fds, timeout, None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Vec::new()),
            Err(errno) => return Err(errno.into()),
        }
        let ready = sources.iter().zip(&fds).filter(|(_, fd)| fd.any().unwrap_or(true));
        Ok(ready.map(|((source, _), _)| *source).collect())
    }

    /// How long nothing is due.
    fn next_wake(&self) -> Option<Duration> {
        let left = self.left.iter().filter_map(LeftProgram::next_wake);
        let shortage = self.shortage.map(|(at, _)| at.remaining());
        left.chain(shortage).chain(self.controls.next_wake()).min()
    }

    /// Kills the programs as a whole of which the kernel has killed a process.
    fn kill_short_of_memory(&mut self) {
        let Some((_, pause)) = self.shortage.filter(|(at, _)| at.passed()) else { return };
        let next = (Deadline::after(pause), pause.saturating_mul(2));
        self.shortage = (pause <= SHORTAGE_LOOK_MAX).then_some(next);
        let programs: Vec<_> = self.shared.programs().values().cloned().collect();
        if programs.is_empty() {
            // It was the end of a group.
            self.shortage = None;
        }
        for entry in programs.iter().filter(|entry| entry.is_watched) {
            if entry.group.oom_kills() > 0
                && !entry.group.is_empty()
                && let Err(error) = entry.group.kill()
            {
                log::warn!("cgroup kill: {error}");
            }
        }
    }

    fn serve_left(&mut self) {
        let mut arrived = self.shared.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        self.left.append(&mut arrived);
        drop(arrived);
        let mut dead = Vec::new();
        self.left.retain_mut(|left| {
            let is_dead = left.serve();
            if is_dead {
                dead.push((left.number, Arc::clone(&left.group)));
            }
            !is_dead
        });
        for (number, group) in dead {
            remove(&group);
            self.shared.programs().remove(&number);
        }
    }
}

fn remove(group: &SandboxGroup) {
    if let Err(error) = group.remove_empty(Deadline::after(GROUP_WAIT)) {
        log::error!("cgroup: {error}");
    }
}
