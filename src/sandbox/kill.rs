//! Ending a box for good.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::cgroup::BoxGroup;
use super::clone::Cloned;
use super::sys;
use crate::base::counter::Counter;
use crate::base::deadline::Deadline;

/// How long the kernel may take to end a box it was told to end.
pub const KILL_WAIT: Duration = Duration::from_secs(5);

/// Boxes of one sandbox that did not die in the time they had.
#[derive(Debug, Clone, Default)]
pub struct KillFailures(Arc<Counter>);

impl KillFailures {
    /// How many there were so far.
    pub fn count(&self) -> u64 {
        self.0.get()
    }
}

/// Where a box is counted that would not die, once however often it is waited for.
#[derive(Debug, Default)]
pub struct KillCount {
    failures: KillFailures,
    counted: AtomicBool,
}

impl KillCount {
    /// Counted among `failures`.
    pub fn among(failures: &KillFailures) -> Self {
        Self { failures: failures.clone(), counted: AtomicBool::new(false) }
    }

    fn failed(&self) {
        if !self.counted.swap(true, Ordering::Relaxed) {
            self.failures.0.increment();
        }
    }
}

/// Tells the kernel to end everything in the box, by both means there are:
/// its cgroup at once, and its init, whose death takes the PID namespace along
/// (whoever has left the process group, stopped, or ignores signals).
pub fn end(process: &Cloned, group: Option<&BoxGroup>) {
    if let Some(Err(error)) = group.map(BoxGroup::kill) {
        log::warn!("cgroup kill: {error}");
    }
    if let Err(error) = sys::signal_process(process.pidfd.as_fd(), libc::SIGKILL) {
        // ESRCH: it ended by itself just now.
        if error.raw_os_error() != Some(libc::ESRCH) {
            log::error!("kill box {}: {error}", process.pid);
        }
    }
}

/// Waits until the box's init is dead, and with it everything inside.
pub fn wait_dead(process: &Cloned, deadline: Deadline) -> bool {
    loop {
        let millis = deadline.remaining().as_millis().min(60_000);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(process.pidfd.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) if deadline.passed() => {
                process.kill_count.failed();
                log::error!("box {} did not die within {KILL_WAIT:?} of SIGKILL", process.pid);
                return false;
            }
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return true,
            Err(errno) => {
                log::error!("wait for box {}: {errno}", process.pid);
                return false;
            }
        }
    }
}

impl Drop for Cloned {
    /// A box that nobody looks after any more must not go on.
    fn drop(&mut self) {
        if self.is_reaped() {
            return;
        }
        end(self, None);
        if wait_dead(self, Deadline::after(KILL_WAIT))
            && let Err(error) = self.reap()
        {
            log::error!("reap box {}: {error}", self.pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_box_that_does_not_die_is_counted_once_and_by_its_own_sandbox_alone() {
        let (failures, others) = (KillFailures::default(), KillFailures::default());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut process = Cloned::of_child(i32::try_from(child.id()).unwrap()).unwrap();
        process.kill_count = KillCount::among(&failures);
        for _ in 0..2 {
            assert!(!wait_dead(&process, Deadline::after(Duration::ZERO)));
            assert_eq!((failures.count(), others.count()), (1, 0));
        }
        end(&process, None);
        assert!(wait_dead(&process, Deadline::after(KILL_WAIT)));
        assert!(!child.wait().unwrap().success());
        assert_eq!(failures.count(), 1);
    }
}
