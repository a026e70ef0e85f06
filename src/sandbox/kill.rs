//! Ending a box for good.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::cgroup::BoxGroup;
use super::clone::Cloned;
use super::sys;
use crate::base::deadline::Deadline;

/// How long the kernel may take to end a box it was told to end.
pub const KILL_WAIT: Duration = Duration::from_secs(5);

/// Boxes that did not die within [`KILL_WAIT`], since the process started.
static UNKILLABLE: AtomicU64 = AtomicU64::new(0);

/// How many boxes would not die, since this process started.
pub fn unkillable_total() -> u64 {
    UNKILLABLE.load(Ordering::Relaxed)
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
                UNKILLABLE.fetch_add(1, Ordering::Relaxed);
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
