//! Sandboxes that do not die although they were killed: a process may hang in the kernel, or have
//! much to undo there. What such a sandbox holds stays taken until its init's pidfd says that all
//! of it is dead, however long that takes.

use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, sleep};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::holdings::Killed;
use crate::cgroup::Age;
use cofferdam_core::values::deadline::Deadline;

/// With as many of them no new sandbox is made.
pub const UNDYING_MAX: usize = 64;
/// How long one that has just come may wait to be looked after.
const ARRIVAL_WAIT: Duration = Duration::from_millis(50);

/// Keeps them, on a thread that lives as long as there are any. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Undying(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// One of them died.
    died: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Those that the thread has yet to look at.
    arrived: Vec<Killed>,
    /// All of them.
    count: usize,
    has_thread: bool,
}

impl Undying {
    /// Keeps everything that `killed` holds until it is dead, then gives it back.
    pub fn keep(&self, killed: Killed) {
        // No longer before all others: it may take all the time there is.
        if let Some(group) = &killed.remnants.group {
            group.weigh(Age::Undying);
        }
        log::error!(
            "box {} is not dead: what it holds stays taken until it is",
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
            // They stay taken, and the next one's thread looks after them too.
            Err(error) => log::error!("undying thread: {error}"),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().count
    }

    /// Whether there are too many to make another sandbox.
    pub fn is_full(&self) -> bool {
        self.count() >= UNDYING_MAX
    }

    /// Waits until there are none; false when the deadline came first.
    pub fn wait_none(&self, deadline: Deadline) -> bool {
        let waited = self
            .0
            .died
            .wait_timeout_while(self.lock(), deadline.remaining(), |state| state.count > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.count == 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does, until there are none.
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
                log::warn!("box {} is dead at last", dead.process.pid);
                dead.give_back();
                // After that: whoever waits for none waits for what they hold.
                self.lock().count -= 1;
                self.0.died.notify_all();
            }
        }
    }
}

/// Waits for at most so long until some of `all` are dead, and takes these.
fn take_dead(all: &mut Vec<Killed>, at_most: Duration) -> Vec<Killed> {
    let pidfds = all.iter().map(|killed| killed.process.pidfd.as_fd());
    let mut fds: Vec<PollFd<'_>> = pidfds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::ZERO);
    if poll(&mut fds, timeout).is_err() {
        // Interrupted, or without memory for it: looked at again, but not at once.
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
    use crate::launch::process::InitProcess;
    use crate::supervise::cleanup::{Remnants, Sender};
    use crate::supervise::kill;
    use cofferdam_core::sync::retained::Retained;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// One that was killed in vain: nobody has killed it.
    fn killed(permit: &Arc<String>) -> Killed {
        Killed {
            process: Arc::new(InitProcess::sleeping()),
            remnants: Remnants::default(),
            retained: Retained::of(permit.clone()),
            disposal: Sender::default(),
        }
    }

    #[test]
    fn what_an_undying_box_holds_is_given_back_when_it_is_dead_and_no_sooner() {
        let undying = Undying::default();
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
        // The thread has ended, or ends; the next one is looked after all the same.
        let next = killed(&permits[0]);
        let process = Arc::clone(&next.process);
        undying.keep(next);
        kill::end(&process, None);
        assert!(undying.wait_none(Deadline::after(PATIENCE)));
    }
}
