//! Carries out the orders to a run: signals, the end with grace, freezing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use nix::poll::PollFlags;

use crate::cgroup::SandboxGroup;
use crate::launch::process::InitProcess;
use crate::supervise::classify::KillReason;
use crate::supervise::observation::Observation;
use crate::sys;
use crate::sys::streams;
use cofferdam_core::sync::run_control::{ControlError, ControlOrder, OrderKind, RunControl};
use cofferdam_core::values::deadline::Deadline;

/// The pause between two looks whether every process is frozen: version 1 sends no event.
const FREEZE_LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The state of the orders of one run.
#[derive(Debug)]
pub struct Controls<'a> {
    control: Option<&'a RunControl>,
    /// The socket that the program's process holds until exec, while that is awaited.
    until_exec: Option<BorrowedFd<'a>>,
    /// The program's own process, unless nothing has one.
    program: Option<MainProcess<'a>>,
    /// Whether the program is about to be executed, or was.
    has_begun: bool,
    terminal: Option<&'a Arc<OwnedFd>>,
    kill_at: Option<Deadline>,
    freeze: FreezeState,
}

/// How to find the process that a program's signals go to.
#[derive(Debug, Clone, Copy)]
pub enum MainProcess<'a> {
    /// This one.
    Known(BorrowedFd<'a>),
    /// The first child of this init. Few programs get a signal, so it is looked up for each.
    FirstChildOf(&'a InitProcess),
}

/// Whether the sandbox is frozen.
#[derive(Debug)]
enum FreezeState {
    Thawed,
    Freezing { order: ControlOrder, by: Deadline, until: Deadline },
    Frozen { until: Deadline },
}

impl<'a> Controls<'a> {
    /// For a run that `control` controls, if there is one. The other end of `release` closes with
    /// the exec of `program`.
    pub fn new(
        control: Option<&'a RunControl>,
        program: Option<MainProcess<'a>>,
        release: BorrowedFd<'a>,
        terminal: Option<&'a Arc<OwnedFd>>,
    ) -> Self {
        Self {
            control,
            until_exec: control.map(|_| release),
            program,
            has_begun: false,
            terminal,
            kill_at: None,
            freeze: FreezeState::Thawed,
        }
    }

    /// Readable with a new order.
    pub fn orders(&self) -> Option<BorrowedFd<'_>> {
        self.control.map(AsFd::as_fd)
    }

    /// The descriptor that hangs up when the program is executed, until it has.
    pub fn until_exec(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.until_exec.map(|socket| (socket, PollFlags::empty()))
    }

    /// The program is about to be executed.
    pub fn program_began(&mut self) {
        self.has_begun = true;
    }

    /// The socket has hung up. `observed` holds all that was reported before.
    pub fn exec_is_over(&mut self, observed: &Observation) {
        self.until_exec = None;
        if let Some(control) = self.control
            && observed.started.is_some()
            && observed.failed.is_none()
        {
            control.note_started();
        }
    }

    /// Carries out every order that has arrived.
    pub fn obey(&mut self, group: Option<&SandboxGroup>, observed: &mut Observation) {
        while let Some(order) = self.control.and_then(RunControl::next_order) {
            match order.kind {
                OrderKind::Freeze { by, until } => self.begin_freeze(order, by, until, group),
                OrderKind::Thaw => order.answer(self.thaw(group)),
                OrderKind::Signal(signal) => order.answer(self.signal(signal, observed)),
                OrderKind::Terminate(grace) => {
                    order.answer(self.terminate(grace, group, observed));
                }
                OrderKind::SignalForeground(_) | OrderKind::Resize(_) => {
                    self.change_terminal(order);
                }
            }
        }
    }

    /// Does what is due by now.
    pub fn look(&mut self, group: Option<&SandboxGroup>, observed: &mut Observation) {
        if self.kill_at.is_some_and(Deadline::passed) {
            observed.note_kill(KillReason::Cancelled);
        }
        match std::mem::replace(&mut self.freeze, FreezeState::Thawed) {
            FreezeState::Thawed => {}
            FreezeState::Frozen { until } if until.passed() => self.end_freeze(group),
            FreezeState::Freezing { order, until, .. } if is_frozen(group) => {
                self.freeze = FreezeState::Frozen { until };
                order.answer(Ok(()));
            }
            FreezeState::Freezing { order, by, .. } if by.passed() => {
                self.end_freeze(group);
                order.answer(Err(ControlError::TimedOut));
            }
            waiting => self.freeze = waiting,
        }
    }

    /// Whether the program was asked to end, so that all of it ends with it.
    pub fn has_asked_to_end(&self) -> bool {
        self.kill_at.is_some()
    }

    /// How long nothing of this is due.
    pub fn next_wake(&self) -> Option<Duration> {
        let freeze = match &self.freeze {
            FreezeState::Thawed => None,
            FreezeState::Freezing { .. } => Some(FREEZE_LOOK_INTERVAL),
            FreezeState::Frozen { until } => Some(until.remaining()),
        };
        self.kill_at.map(Deadline::remaining).into_iter().chain(freeze).min()
    }

    /// Lets frozen processes go on: those of a killed sandbox may have to, to die.
    pub fn release(&mut self, group: Option<&SandboxGroup>) {
        if !matches!(self.freeze, FreezeState::Thawed) {
            self.end_freeze(group);
        }
    }

    /// On a thread of its own: a tenant's thread without CPU time may hold the terminal's locks.
    fn change_terminal(&self, order: ControlOrder) {
        let Some(master) = self.terminal.map(Arc::clone) else {
            return order.answer(Err(ControlError::NoTerminal));
        };
        let change = move || {
            let changed = match order.kind {
                OrderKind::Resize(size) => streams::resize_terminal(master.as_fd(), size),
                OrderKind::SignalForeground(signal) => {
                    streams::signal_terminal(master.as_fd(), signal)
                }
                _ => Ok(()),
            };
            let refused =
                |error: io::Error| ControlError::Refused(error.raw_os_error().unwrap_or(libc::EIO));
            order.answer(changed.map_err(refused));
        };
        // Without a thread the order is dropped, and so answered with an error.
        if let Err(error) = Builder::new().name("terminal".to_owned()).spawn(change) {
            log::warn!("terminal: {error}");
        }
    }

    fn signal(&self, signal: i32, observed: &Observation) -> Result<(), ControlError> {
        if observed.ended.is_some() {
            return Err(ControlError::Ended);
        }
        // Before its exec the process is not the program yet.
        let begun = self.program.filter(|_| self.has_begun && self.until_exec.is_none());
        let sent = match begun.ok_or(ControlError::NotStarted)? {
            MainProcess::Known(program) => sys::signal_process(program, signal),
            MainProcess::FirstChildOf(init) => {
                init.first_child().and_then(|program| sys::signal_process(program.as_fd(), signal))
            }
        };
        match sent {
            Ok(()) => Ok(()),
            Err(error) => Err(match error.raw_os_error() {
                Some(libc::ESRCH) => ControlError::Ended,
                errno => ControlError::Refused(errno.unwrap_or(libc::EIO)),
            }),
        }
    }

    fn terminate(
        &mut self,
        grace: Duration,
        group: Option<&SandboxGroup>,
        observed: &mut Observation,
    ) -> Result<(), ControlError> {
        match self.signal(libc::SIGTERM, observed) {
            Ok(()) => {
                self.release(group);
                let earlier = |at: &Deadline| at.remaining() <= grace;
                self.kill_at =
                    self.kill_at.filter(earlier).or_else(|| Some(Deadline::after(grace)));
                Ok(())
            }
            Err(ControlError::Ended) => Err(ControlError::Ended),
            // No program to ask.
            Err(_) => {
                observed.note_kill(KillReason::Cancelled);
                Ok(())
            }
        }
    }

    fn begin_freeze(
        &mut self,
        order: ControlOrder,
        by: Deadline,
        until: Deadline,
        group: Option<&SandboxGroup>,
    ) {
        if !matches!(self.freeze, FreezeState::Thawed) {
            return order.answer(Err(ControlError::Busy));
        }
        match group.map(SandboxGroup::freeze) {
            Some(Ok(true)) => self.freeze = FreezeState::Freezing { order, by, until },
            Some(Ok(false)) | None => order.answer(Err(ControlError::Unsupported)),
            Some(Err(error)) => order.answer(Err(ControlError::Refused(error.errno as i32))),
        }
    }

    fn thaw(&mut self, group: Option<&SandboxGroup>) -> Result<(), ControlError> {
        match std::mem::replace(&mut self.freeze, FreezeState::Thawed) {
            FreezeState::Thawed => Err(ControlError::TimedOut),
            FreezeState::Frozen { until } => {
                self.end_freeze(group);
                if until.passed() { Err(ControlError::TimedOut) } else { Ok(()) }
            }
            FreezeState::Freezing { order, .. } => {
                self.end_freeze(group);
                order.answer(Err(ControlError::TimedOut));
                Ok(())
            }
        }
    }

    fn end_freeze(&mut self, group: Option<&SandboxGroup>) {
        self.freeze = FreezeState::Thawed;
        if let Some(Err(error)) = group.map(SandboxGroup::thaw) {
            log::error!("thaw: {error}");
        }
    }
}

fn is_frozen(group: Option<&SandboxGroup>) -> bool {
    group.is_some_and(SandboxGroup::is_frozen)
}
