//! Which filters the program's process installs, and when.

use super::step::Step;
use crate::host::weakened;
use crate::host::weakened::Wall;
use crate::locks::{LockCalls, LockFilter};
use cofferdam_seccomp::filter::Filter;
use cofferdam_seccomp::interpret::lets_through;

/// The calls that send the listener for file locks.
const SEND_LISTENER: [i64; 2] = [libc::SYS_sendmsg, libc::SYS_close];
/// The calls between a filter that is installed ahead and the program.
const AFTER_FILTER: [i64; 6] = [
    libc::SYS_read,
    libc::SYS_prlimit64,
    libc::SYS_sched_setattr,
    libc::SYS_clock_gettime,
    libc::SYS_write,
    libc::SYS_execve,
];

/// The steps that install the program's filters: those before it waits to be let go, and those
/// behind. The kernel takes its time to translate a filter, so a box made ahead has them already, and
/// one filter does for both the profile and the file locks, where the profile leaves the calls that
/// come after.
pub fn filter_steps(profile: &Filter, locks: &LockFilter) -> (Vec<Step>, Vec<Step>) {
    if weakened::lacks(Wall::Seccomp) {
        return (Vec::new(), Vec::new());
    }
    let watch = |filter: &Filter| match locks.calls {
        LockCalls::Watched => {
            Step::WatchLocks { name: filter.name.clone(), program: filter.bytes() }
        }
        LockCalls::Refused => install(filter),
    };
    if !lets_through(profile, &AFTER_FILTER) {
        return (vec![watch(&locks.filter)], vec![install(profile)]);
    }
    let both = profile.then(&locks.filter).filter(|both| lets_through(both, &SEND_LISTENER));
    let apart = || vec![watch(&locks.filter), install(profile)];
    (both.map_or_else(apart, |both| vec![watch(&both)]), Vec::new())
}

/// The step that installs `filter`.
pub fn install(filter: &Filter) -> Step {
    Step::InstallFilter { name: filter.name.clone(), program: filter.bytes() }
}
