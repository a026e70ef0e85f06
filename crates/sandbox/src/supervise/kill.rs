//! Kills a sandbox and waits for its death.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cgroup::SandboxGroup;
use crate::launch::process::InitProcess;
use crate::sys;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};

/// How long the kernel may take to end a killed sandbox.
pub const KILL_WAIT: Duration = Duration::from_secs(5);
/// How long a killed group may take to become empty before it is killed again.
const KILL_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Kills every process of the sandbox in two ways: all at once through its cgroup, and through its
/// init. The death of the init ends its PID namespace, with processes that left the process group,
/// are stopped, or ignore signals.
pub fn end(process: &InitProcess, group: Option<&SandboxGroup>) {
    if let Some(Err(error)) = group.map(SandboxGroup::kill) {
        log::warn!("cgroup kill: {error}");
    }
    if let Err(error) = sys::signal_process(process.pidfd.as_fd(), libc::SIGKILL) {
        // ESRCH: it has just ended by itself.
        if error.raw_os_error() != Some(libc::ESRCH) {
            log::error!("kill sandbox {}: {error}", process.pid);
        }
    }
}

/// Kills every process of `group`, whose sandbox goes on, and waits until they are dead. False if the
/// deadline passes first.
pub fn end_group(group: &SandboxGroup, deadline: Deadline) -> bool {
    if weakened::lacks(Wall::Group) {
        end_oldest(group);
        return true;
    }
    loop {
        // Who looks after what programs left removes an empty group.
        if group.is_empty() {
            return true;
        }
        match group.kill() {
            Ok(true) => {}
            Ok(false) => log::error!("cgroup kill: not possible on this host"),
            Err(error) => log::warn!("cgroup kill: {error}"),
        }
        // A process that was being moved into the group may have come after the kill.
        if group.wait_empty(deadline.min(Deadline::after(KILL_AGAIN_AFTER))) {
            return true;
        }
        if deadline.passed() {
            return false;
        }
    }
}

/// Kills the oldest process of `group`, as a supervisor does that knows no other.
fn end_oldest(group: &SandboxGroup) {
    let listed = group.processes().unwrap_or_default();
    let oldest = listed.iter().min().and_then(|pid| sys::pidfd_of(*pid).ok());
    // ESRCH: it has just ended by itself.
    let _ = oldest.map(|process| sys::signal_process(process.as_fd(), libc::SIGKILL));
}

/// Waits at most `at_most` for the init to die by itself.
pub fn dies_within(process: &InitProcess, at_most: Duration) -> bool {
    let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::ZERO);
    let mut pidfd = [PollFd::new(process.pidfd.as_fd(), PollFlags::POLLIN)];
    poll(&mut pidfd, timeout).is_ok_and(|ready| ready > 0)
}

/// Waits until the init is dead, and with it everything inside. The first call sets the deadline to
/// `at_most` from then; later calls use the same deadline.
pub fn wait_dead(process: &InitProcess, at_most: Duration) -> bool {
    let deadline = *process.death_due.get_or_init(|| Deadline::after(at_most));
    loop {
        let millis = deadline.remaining().as_millis().min(60_000);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(process.pidfd.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) if deadline.passed() => {
                process.kill_count.record_failure();
                return false;
            }
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return true,
            Err(errno) => {
                log::error!("wait for sandbox {}: {errno}", process.pid);
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::kill_count::KillFailures;

    #[test]
    fn a_sandbox_that_does_not_die_is_counted_once_and_by_its_own_counter_alone() {
        let (failures, others) = (KillFailures::default(), KillFailures::default());
        let process = InitProcess::sleeping();
        process.kill_count.count_among(&failures);
        process.kill_count.count_among(&others);
        for _ in 0..2 {
            assert!(!wait_dead(&process, Duration::ZERO));
            assert_eq!((failures.count(), others.count()), (1, 0));
        }
        end(&process, None);
        while !wait_dead(&process, Duration::ZERO) {
            std::thread::yield_now();
        }
        process.reap().unwrap();
        assert_eq!(failures.count(), 1);
    }

    #[test]
    fn later_waits_share_the_deadline_of_the_first() {
        let process = InitProcess::sleeping();
        let began = std::time::Instant::now();
        let at_most = Duration::from_millis(50);
        assert!(!wait_dead(&process, at_most));
        let waited = began.elapsed();
        assert!(waited >= at_most, "{waited:?}");
        assert!(!wait_dead(&process, Duration::from_secs(3600)));
        assert!(began.elapsed() < Duration::from_secs(60));
        end(&process, None);
    }
}
