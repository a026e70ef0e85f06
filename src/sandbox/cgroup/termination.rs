//! Killing everything in a group, so that nothing in it can fork its way out.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::control::CgroupVersion;
use super::directory::{CgroupError, Directory};
use super::waiting::wait_for_line;
use crate::base::deadline::Deadline;
use crate::sandbox::sys::schedule_ordinarily;

/// How long a freeze may take. A process in an uninterruptible call may delay
/// it for ever, and is killed unfrozen after this.
const FREEZE_WAIT_MAX: Duration = Duration::from_millis(50);

/// How a group is frozen, and how it tells that it is.
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

/// For kernels before 5.14, which have no `cgroup.kill`.
const V2_FREEZER: Freezer = Freezer {
    file: "cgroup.freeze",
    freeze: "1",
    thaw: "0",
    state_file: "cgroup.events",
    frozen_line: "frozen 1",
};

/// Sends SIGKILL to every process of the group; false when the group has no
/// means to do so at once. They die soon after, not before this returns.
pub(super) fn kill_all(directory: &Directory) -> Result<bool, CgroupError> {
    match directory.version() {
        CgroupVersion::V1 => kill_frozen(directory, &V1_FREEZER),
        CgroupVersion::V2 => match directory.write("cgroup.kill", "1") {
            Ok(()) => Ok(true),
            Err(error) if error.errno == Errno::ENOENT => kill_frozen(directory, &V2_FREEZER),
            Err(error) => Err(error),
        },
    }
}

/// Frozen, no process of the group can fork or end, so that the list of them
/// is whole and no id on it can have become another process's.
fn kill_frozen(directory: &Directory, freezer: &Freezer) -> Result<bool, CgroupError> {
    match directory.write(freezer.file, freezer.freeze) {
        Ok(()) => {}
        Err(error) if error.errno == Errno::ENOENT => return Ok(false),
        Err(error) => return Err(error),
    }
    let deadline = Deadline::after(FREEZE_WAIT_MAX);
    wait_for_line(directory, freezer.state_file, freezer.frozen_line, deadline);
    let processes = directory.processes();
    for process in processes.as_deref().unwrap_or_default() {
        kill_process(*process);
    }
    // Version 1 delivers the signal only now.
    directory.write(freezer.file, freezer.thaw)?;
    processes.map(|_| true)
}

/// Has what is killed die soon: on a busy host, threads that made themselves idle or nice would
/// wait for everybody else before they get the moment of CPU time that dying takes.
pub(super) fn hasten(directory: &Directory) {
    for thread in directory.threads().unwrap_or_default() {
        // ESRCH is success; without the right to it they die all the same, only later.
        if let Err(error) = schedule_ordinarily(thread)
            && error.raw_os_error() == Some(Errno::EPERM as i32)
        {
            return;
        }
    }
}

/// SIGKILL to one process; its being gone already is what was wanted. Ids that
/// `kill` takes for a group or for everyone are not processes.
pub(super) fn kill_process(id: i32) {
    if id > 0 {
        // ESRCH is success; EPERM shows when the group does not get empty.
        let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
    }
}
