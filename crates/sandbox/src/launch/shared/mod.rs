//! A sandbox that lasts: its programs share processes, the loopback, IPC and `/dev/shm`.
//!
//! PID 1 starts each program in a group of its own and goes on when it ends, and so does what the
//! program left. `host` creates the sandbox, `keeper` is the thread that it dies with, `requests`
//! asks PID 1, `program` runs one program, `left` looks after what programs left, `processes` lists,
//! `alarm` wakes the keeper.

mod alarm;
mod host;
mod keeper;
mod left;
mod processes;
mod program;
mod requests;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;

use self::alarm::KeeperAlarm;
pub use self::keeper::KeptSandbox;
use self::left::LeftProgram;
pub use self::processes::SharedProcess;
use self::requests::RequestSocket;
use crate::cgroup::SandboxGroup;
use crate::launch::process::InitProcess;
use crate::supervise::cleanup::queue::RESPONSE_WAIT;
use crate::supervise::kill;
use cofferdam_core::SetupFailure;
use cofferdam_core::sync::run_control::RunControl;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};

/// Programs of one sandbox that run or have left processes. Each holds some descriptors.
const PROGRAMS_MAX: usize = 128;
/// The next program's group is made after a short program, and beside a long one.
const SPARE_WAIT: Duration = Duration::from_millis(20);
/// The step of a program that finds so many others.
pub const PROGRAMS_STEP: &str = "programs of the sandbox";

/// A sandbox that lasts. Clones are the same one; it ends with its [`KeptSandbox`].
#[derive(Debug, Clone)]
pub struct SharedSandbox(Arc<SharedState>);

/// Whose a program is.
#[derive(Debug, Clone, Default)]
pub struct ProgramLabel {
    /// The directory of its run.
    pub run_dir: Option<String>,
    /// What controls it.
    pub control: Option<RunControl>,
}

/// What the threads of a sandbox share.
#[derive(Debug)]
struct SharedState {
    process: Arc<InitProcess>,
    requests: RequestSocket,
    /// The group of all programs. `None` once the sandbox is dead.
    all: Mutex<Option<Arc<SandboxGroup>>>,
    /// The file system of its terminals.
    terminals: Arc<OwnedFd>,
    /// Its file systems, for a look at the space left.
    disks: Vec<OwnedFd>,
    tenant: u32,
    programs: Mutex<BTreeMap<u64, ProgramEntry>>,
    /// Notified when the main process of a program has ended.
    ended: Condvar,
    begun: AtomicU64,
    /// The group of the next program, made in advance.
    spare: Mutex<Option<ReadyGroup>>,
    /// Programs that have just ended, for the keeper.
    arrived: Mutex<Vec<LeftProgram>>,
    /// Wakes the keeper.
    alarm: KeeperAlarm,
    /// Readable when memory ran out, on version 1.
    shortage: EventFd,
    /// Whether version 2 refused to clone into a group.
    joins_itself: AtomicBool,
    is_over: AtomicBool,
}

/// A group for a program, without limits.
#[derive(Debug)]
struct ReadyGroup {
    number: u64,
    group: SandboxGroup,
    /// Whether the supervisor has to kill it as a whole when memory runs out.
    is_watched: bool,
}

/// A program that runs or has left processes.
#[derive(Debug, Clone)]
struct ProgramEntry {
    group: Arc<SandboxGroup>,
    label: ProgramLabel,
    /// Whether its main process has ended.
    has_ended: bool,
    /// Whether the supervisor has to kill it as a whole when memory runs out.
    is_watched: bool,
}

impl SharedSandbox {
    /// Whether PID 1 lives.
    pub fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    /// Kills what the ended program with that `control` left, and waits until it is dead.
    ///
    /// # Errors
    /// It is not dead in time.
    pub fn kill_left(&self, control: &RunControl) -> Result<(), SetupFailure> {
        let is_meant = |entry: &&ProgramEntry| {
            let known = entry.label.control.as_ref();
            entry.has_ended && known.is_some_and(|known| known.is_same(control))
        };
        let left: Vec<_> =
            self.0.programs().values().filter(is_meant).map(|e| Arc::clone(&e.group)).collect();
        let deadline = Deadline::after(kill::KILL_WAIT);
        for group in left {
            if !kill::end_group(&group, deadline) {
                let words = "what the program left is killed and not dead yet";
                return Err(SetupFailure::from_words("kill", words));
            }
        }
        Ok(())
    }
}

impl SharedState {
    fn programs(&self) -> MutexGuard<'_, BTreeMap<u64, ProgramEntry>> {
        // Each change leaves the table consistent.
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Option<Arc<SandboxGroup>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_alive(&self) -> bool {
        let mut process = [PollFd::new(self.process.pidfd.as_fd(), PollFlags::POLLIN)];
        let is_running = poll(&mut process, PollTimeout::ZERO).is_ok_and(|ready| ready == 0);
        is_running && !self.is_over.load(Ordering::Acquire)
    }

    /// Makes a group for a program in `all`.
    fn make_group(&self, all: &SandboxGroup) -> Result<ReadyGroup, SetupFailure> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let group = all.nested(&format!("p{number}"))?;
        group.give_entry(self.tenant)?;
        let is_watched = !weakened::lacks(Wall::Group) && !group.die_together();
        if is_watched && let Err(error) = group.report_shortage(self.shortage.as_fd()) {
            log::warn!("memory of a program: {error}");
        }
        Ok(ReadyGroup { number, group, is_watched })
    }

    /// Takes the spare group, or makes one. The keeper makes another.
    fn take_group(&self, all: &SandboxGroup) -> Result<ReadyGroup, SetupFailure> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.alarm.ring_within(SPARE_WAIT);
        spare.map_or_else(|| self.make_group(all), Ok)
    }

    /// Makes the spare group, unless there is one.
    fn make_spare(&self, all: &SandboxGroup) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.is_none() {
            // The next program reports what is wrong.
            *spare = self.make_group(all).ok();
        }
    }

    /// Adds a program, which gets its number.
    ///
    /// # Errors
    /// There are as many as there may be.
    fn add(&self, number: u64, entry: ProgramEntry) -> Result<(), SetupFailure> {
        let mut programs = self.programs();
        if programs.len() >= PROGRAMS_MAX {
            let words = format!("{PROGRAMS_MAX} programs run or have left processes");
            return Err(SetupFailure::from_words(PROGRAMS_STEP, words));
        }
        programs.insert(number, entry);
        Ok(())
    }

    /// Hands a program whose main process has ended to the keeper.
    fn hand_over(&self, left: LeftProgram) {
        if let Some(entry) = self.programs().get_mut(&left.number) {
            entry.has_ended = true;
        }
        self.ended.notify_all();
        if self.is_over.load(Ordering::Acquire) {
            // No caller keeps the sandbox any more. The keeper may remove the group too.
            let _ = left.group.remove_empty(Deadline::after(kill::KILL_WAIT));
            return;
        }
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(left);
        self.alarm.ring_within(RESPONSE_WAIT);
    }

    /// Waits until every program's main process has ended.
    fn wait_ended(&self, at_most: Duration) {
        let runs = |programs: &mut BTreeMap<u64, ProgramEntry>| {
            programs.values().any(|entry| !entry.has_ended)
        };
        let waited = self.ended.wait_timeout_while(self.programs(), at_most, runs);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
