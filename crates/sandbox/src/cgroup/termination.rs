//! Kills every process of a group, so that no process can escape by forking.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::control::CgroupVersion;
use super::directory::{CgroupDirectory, CgroupError};
use crate::sys::{pidfd_of, schedule_ordinarily, signal_process};
use cofferdam_core::values::deadline::Deadline;

/// How long a freeze may take. A process in an uninterruptible call may delay it forever; the group
/// is then killed unfrozen.
const FREEZE_WAIT_MAX: Duration = Duration::from_millis(50);

/// The number of pidfds held open at once.
const PIDFDS_AT_ONCE_MAX: usize = 128;

/// How to freeze a group, and how it reports that it is frozen.
struct Freezer {
    file: &'static str,
    freeze: &'static str,
    thaw: &'static str,
    state_file: &'static str,
    frozen_line: &'static str,
}

const V1_FREEZER: Freezer = Freezer {
    file: "freezer.state",
    freeze: "FROZEN",
    thaw: "THAWED",
    state_file: "freezer.state",
    frozen_line: "FROZEN",
};

/// Also kills on kernels before 5.14, which have no `cgroup.kill`.
const V2_FREEZER: Freezer = Freezer {
    file: "cgroup.freeze",
    freeze: "1",
    thaw: "0",
    state_file: "cgroup.events",
    frozen_line: "frozen 1",
};

/// Begins to freeze the group. False if it has no freezer.
pub(super) fn freeze(directory: &CgroupDirectory) -> Result<bool, CgroupError> {
    let freezer = freezer_of(directory);
    match directory.write(freezer.file, freezer.freeze) {
        Ok(()) => Ok(true),
        Err(error) if error.errno == Errno::ENOENT => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether every process of the group is frozen.
pub(super) fn is_frozen(directory: &CgroupDirectory) -> bool {
    let freezer = freezer_of(directory);
    let state = directory.read(freezer.state_file);
    state.is_ok_and(|text| text.lines().any(|line| line == freezer.frozen_line))
}

/// Lets the processes of a frozen group go on.
pub(super) fn thaw(directory: &CgroupDirectory) -> Result<(), CgroupError> {
    let freezer = freezer_of(directory);
    directory.write(freezer.file, freezer.thaw)
}

fn freezer_of(directory: &CgroupDirectory) -> &'static Freezer {
    match directory.version() {
        CgroupVersion::V1 => &V1_FREEZER,
        CgroupVersion::V2 => &V2_FREEZER,
    }
}

/// Sends SIGKILL to every process of the group. False if the group cannot do so at once. The
/// processes die soon after, not before this returns.
pub(super) fn kill_all(directory: &CgroupDirectory) -> Result<bool, CgroupError> {
    match directory.version() {
        CgroupVersion::V1 => kill_frozen(directory),
        CgroupVersion::V2 => match directory.write("cgroup.kill", "1") {
            Ok(()) => Ok(true),
            Err(error) if error.errno == Errno::ENOENT => kill_frozen(directory),
            Err(error) => Err(error),
        },
    }
}

/// No process of a frozen group can fork, so the list of its processes is complete.
fn kill_frozen(directory: &CgroupDirectory) -> Result<bool, CgroupError> {
    let freezer = freezer_of(directory);
    if !freeze(directory)? {
        return Ok(false);
    }
    let deadline = Deadline::after(FREEZE_WAIT_MAX);
    let frozen = directory.wait_for_line(freezer.state_file, freezer.frozen_line, deadline);
    let killed = kill_listed(directory);
    if frozen && directory.version() == CgroupVersion::V1 {
        hasten_frozen(directory);
    }
    // Version 1 delivers the signal only after the thaw.
    thaw(directory)?;
    killed.map(|()| true)
}

/// Makes killed threads die soon: on a busy host, threads that made themselves idle or nice wait
/// for all others before they get the CPU time that dying takes. No system call for this takes a
/// descriptor. In a frozen group of version 1 the ids are reliable: no thread ends before the thaw,
/// not even by SIGKILL, so no id is reused.
fn hasten_frozen(directory: &CgroupDirectory) {
    for thread in directory.threads().unwrap_or_default() {
        // ESRCH is success. Without permission they die all the same, only later.
        if let Err(error) = schedule_ordinarily(thread)
            && error.raw_os_error() == Some(Errno::EPERM as i32)
        {
            return;
        }
    }
}

/// Sends SIGKILL to every process that the group lists, and to no other, even if ids are reused
/// meanwhile. If the group is not frozen, forked processes may escape.
pub(super) fn kill_listed(directory: &CgroupDirectory) -> Result<(), CgroupError> {
    for ids in directory.processes()?.chunks(PIDFDS_AT_ONCE_MAX) {
        // ESRCH: it is gone already.
        let open = |id: &i32| Some((*id, pidfd_of(*id).ok()?));
        let opened: Vec<(i32, OwnedFd)> = ids.iter().filter_map(open).collect();
        kill_proven(&opened, &directory.processes()?);
    }
    Ok(())
}

/// Kills the processes in `opened` whose ids are in `listed`, a list read after they were opened. A
/// process that is alive now has had its id since it was opened, so the list means this process.
fn kill_proven(opened: &[(i32, OwnedFd)], listed: &[i32]) {
    let listed: BTreeSet<i32> = listed.iter().copied().collect();
    for (id, pidfd) in opened {
        if listed.contains(id) && is_alive(pidfd) {
            // It may be gone by now. After EPERM the group does not become empty, which the caller
            // sees.
            let _ = signal_process(pidfd.as_fd(), libc::SIGKILL);
        }
    }
}

/// Whether the process is alive.
fn is_alive(pidfd: &OwnedFd) -> bool {
    let mut interest = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    poll(&mut interest, PollTimeout::ZERO) == Ok(0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_whose_id_the_group_no_longer_lists_is_not_killed() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let id = i32::try_from(child.id()).unwrap();
        let opened = [(id, pidfd_of(id).unwrap())];
        kill_proven(&opened, &[id + 1]);
        assert!(is_alive(&opened[0].1) && child.try_wait().unwrap().is_none());
        kill_proven(&opened, &[id]);
        child.wait().unwrap();
        assert!(!is_alive(&opened[0].1));
    }
}
