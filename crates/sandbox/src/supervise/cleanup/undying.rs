//! Killed sandboxes that have not died: a process may hang in the kernel, or have much to release
//! there. Their resources stay taken until the pidfd of the init reports that all processes are
//! dead, however long that takes.

use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, sleep};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::queue::{CleanupQueue, SandboxResources};
use crate::cgroup::{CpuClass, SandboxGroup};
use crate::launch::process::InitProcess;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;

/// At this number no new sandbox is created.
pub const UNDYING_MAX: usize = 64;
/// How long a newly added sandbox may wait until the thread polls it.
const ARRIVAL_WAIT: Duration = Duration::from_millis(50);

/// Everything of a sandbox that was killed.
#[derive(Debug)]
pub struct KilledSandbox {
    /// The init.
    pub process: Arc<InitProcess>,
    /// File system, cgroup and namespaces.
    pub resources: SandboxResources,
    /// What the caller has it retain until it is dead.
    pub retained: Retained,
    /// Cleans up the resources.
    pub queue: CleanupQueue,
}

impl KilledSandbox {
    /// Reaps the init and gives everything back. Call it only when the init is dead.
    pub fn clean_up(self) {
        let Self { process, mut resources, retained, queue } = self;
        if !process.is_reaped()
            && let Err(error) = process.reap()
        {
            // It is dead; only its usage is lost.
            log::error!("reap sandbox {}: {error}", process.pid);
        }
        resources.group.iter_mut().for_each(SandboxGroup::close_usage_files);
        queue.push(resources);
        drop(retained);
    }
}

/// Keeps killed sandboxes until they are dead, on a thread that runs while there are any. Clones
/// share them.
#[derive(Debug, Clone, Default)]
pub struct UndyingSandboxes(Arc<UndyingShared>);

#[derive(Debug, Default)]
struct UndyingShared {
    state: Mutex<UndyingState>,
    /// Notified when one of them dies.
    died: Condvar,
}

#[derive(Debug, Default)]
struct UndyingState {
    /// Added since the thread last looked.
    arrived: Vec<KilledSandbox>,
    /// The number of all of them.
    count: usize,
    has_thread: bool,
}

impl UndyingSandboxes {
    /// Keeps everything that `killed` holds until it is dead, then cleans it up.
    pub fn keep(&self, killed: KilledSandbox) {
        // It no longer has the CPU weight of a dying sandbox: it may never die.
        if let Some(group) = &killed.resources.group {
            group.set_cpu_class(CpuClass::Undying);
        }
        log::error!(
            "sandbox {} is not dead: what it holds stays taken until it is",
            killed.process.pid
        );
        let mut state = self.lock();
        state.arrived.push(killed);
        state.count += 1;
        if state.has_thread {
            return;
        }
        let keeper = self.clone();
        match Builder::new().name("undying".to_owned()).spawn(move || keeper.look_after_all()) {
            Ok(_) => state.has_thread = true,
            // They stay taken. The thread of the next one keeps them too.
            Err(error) => log::error!("undying thread: {error}"),
        }
    }

    /// The number of them.
    pub fn count(&self) -> usize {
        self.lock().count
    }

    /// Whether there are too many to create another sandbox.
    pub fn is_full(&self) -> bool {
        self.count() >= UNDYING_MAX
    }

    /// Waits until there are none. False if the deadline passes first.
    pub fn wait_none(&self, deadline: Deadline) -> bool {
        let waited = self
            .0
            .died
            .wait_timeout_while(self.lock(), deadline.remaining(), |state| state.count > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.count == 0
    }

    fn lock(&self) -> MutexGuard<'_, UndyingState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: runs until there are none.
    fn look_after_all(&self) {
        let mut all = Vec::new();
        loop {
            {
                let mut state = self.lock();
                all.append(&mut state.arrived);
                if all.is_empty() {
                    state.has_thread = false;
                    return;
                }
            }
            for dead in take_dead(&mut all, ARRIVAL_WAIT) {
                log::warn!("sandbox {} is dead at last", dead.process.pid);
                dead.clean_up();
                // Only now: callers of `wait_none` wait for the resources too.
                self.lock().count -= 1;
                self.0.died.notify_all();
            }
        }
    }
}

/// Waits at most `at_most` until some of `all` are dead, and takes these.
fn take_dead(all: &mut Vec<KilledSandbox>, at_most: Duration) -> Vec<KilledSandbox> {
    let pidfds = all.iter().map(|killed| killed.process.pidfd.as_fd());
    let mut fds: Vec<PollFd<'_>> = pidfds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::ZERO);
    if poll(&mut fds, timeout).is_err() {
        // Interrupted, or out of memory: try again, but not at once.
        sleep(at_most);
        return Vec::new();
    }
    let is_dead = |fd: &PollFd<'_>| fd.revents().is_some_and(|got| got.contains(PollFlags::POLLIN));
    let dead: Vec<bool> = fds.iter().map(is_dead).collect();
    let mut dead = dead.into_iter();
    all.extract_if(.., |_| dead.next().unwrap_or(false)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::kill;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A sandbox that counts as killed while its process lives.
    fn killed(permit: &Arc<String>) -> KilledSandbox {
        KilledSandbox {
            process: Arc::new(InitProcess::sleeping()),
            resources: SandboxResources::default(),
            retained: Retained::of(permit.clone()),
            queue: CleanupQueue::default(),
        }
    }

    #[test]
    fn the_resources_of_an_undying_sandbox_are_released_only_when_it_is_dead() {
        let undying = UndyingSandboxes::default();
        let permits = ["first", "second"].map(|name| Arc::new(name.to_owned()));
        let all = permits.each_ref().map(killed);
        let processes = all.each_ref().map(|killed| Arc::clone(&killed.process));
        all.into_iter().for_each(|killed| undying.keep(killed));
        assert!(!undying.wait_none(Deadline::after(3 * ARRIVAL_WAIT)));
        assert_eq!(undying.count(), 2);
        kill::end(&processes[1], None);
        while undying.count() == 2 {
            std::thread::yield_now();
        }
        assert_eq!(permits.each_ref().map(Arc::strong_count), [2, 1]);
        assert_eq!([processes[0].is_reaped(), processes[1].is_reaped()], [false, true]);
        kill::end(&processes[0], None);
        assert!(undying.wait_none(Deadline::after(PATIENCE)));
        assert_eq!(permits.each_ref().map(Arc::strong_count), [1, 1]);
        assert!(processes[0].is_reaped());
        // The thread has ended or is ending. The next sandbox is kept all the same.
        let next = killed(&permits[0]);
        let process = Arc::clone(&next.process);
        undying.keep(next);
        kill::end(&process, None);
        assert!(undying.wait_none(Deadline::after(PATIENCE)));
    }
}
