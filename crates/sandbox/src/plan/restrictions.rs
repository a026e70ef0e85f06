//! How the program's process restricts itself: Landlock rules and seccomp filters.

use std::ffi::CStr;

use crate::host::weakened;
use crate::host::weakened::Wall;
use crate::landlock::Landlock;
use crate::locks::{LockCalls, LockFilter};
use crate::plan::input::{PlanInput, ROOT_FD};
use crate::plan::rootfs::QUEUES;
use crate::plan::steps::Step;
use crate::plan::steps::mount::{Access, MountStep};
use crate::plan::steps::restrict::RestrictStep;
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
        LockCalls::Watched => Step::Restrict(RestrictStep::WatchLocks {
            name: filter.name.clone(),
            program: filter.bytes(),
        }),
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
    Step::Restrict(RestrictStep::InstallFilter {
        name: filter.name.clone(),
        program: filter.bytes(),
    })
}

/// Everything can be read and executed, and written is what is meant to be: the
/// box's own places, its devices, and what a run asked for. Once all is mounted,
/// since a rule is about the file that a path leads to.
pub fn rule_steps(landlock: Landlock, input: &PlanInput<'_>) -> Vec<Step> {
    // The box's file system is where it belongs, and the number it came by is free.
    let allow = |path: &CStr, allowed| {
        Step::Restrict(RestrictStep::AllowBelow { path: path.into(), allowed, fd: ROOT_FD })
    };
    let everything = landlock.writable_directory();
    let mut steps = vec![
        Step::Restrict(RestrictStep::CreateRules {
            handled: landlock.handled(),
            scoped: landlock.scoped(),
        }),
        allow(c"/", landlock.readable()),
    ];
    steps.extend(input.root.devices.iter().map(|node| allow(&node.target, landlock.device())));
    steps.extend(input.root.writable.iter().map(|path| allow(path, everything)));
    for tree in input.trees.iter().filter(|tree| tree.access == Access::ReadWrite) {
        let rights = if tree.directory { everything } else { landlock.writable_file() };
        steps.push(allow(&tree.target, rights));
    }
    steps.extend(input.tmpfs.iter().map(|tmpfs| allow(&tmpfs.target, everything)));
    if input.message_queues {
        steps.push(Step::Mount(MountStep::MountQueues));
        steps.push(allow(QUEUES, everything));
    }
    steps
}

/// Obeys the rules and proves it where the process could make any file.
pub fn restrict_self_steps(landlock: Landlock, refused: &CStr) -> [Step; 2] {
    let flags = landlock.restrict_flags();
    [
        Step::Restrict(RestrictStep::ObeyRules { flags }),
        Step::Restrict(RestrictStep::ProveRules { path: refused.to_owned() }),
    ]
}
