//! How the program's process restricts itself: Landlock rules and seccomp filters.

use std::ffi::CStr;

use crate::landlock::Landlock;
use crate::locks::{LockCalls, LockFilter};
use crate::plan::input::{PlanInput, ROOT_FD};
use crate::plan::rootfs::{QUEUES, TERMINALS};
use crate::plan::steps::Step;
use crate::plan::steps::mount::{Access, MountStep};
use crate::plan::steps::restrict::RestrictStep;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_seccomp::filter::Filter;
use cofferdam_seccomp::interpret::lets_through;

/// The calls that send the listener for file locks.
const SEND_LISTENER: [i64; 2] = [libc::SYS_sendmsg, libc::SYS_close];
/// The calls between the installation of a filter and the program, in a prepared sandbox. The first is
/// made if the program is sent.
const AFTER_FILTER: [i64; 7] = [
    libc::SYS_chdir,
    libc::SYS_read,
    libc::SYS_prlimit64,
    libc::SYS_sched_setattr,
    libc::SYS_clock_gettime,
    libc::SYS_write,
    libc::SYS_execve,
];

/// The steps that install the program's filters: those before the program waits to be resumed, and
/// those after.
///
/// The kernel takes its time to translate a filter, so a prepared sandbox installs its filters
/// before it waits, if the profile allows the calls that come after. If the profile also allows the
/// calls that send the listener, one filter does the work of both the profile and the file locks.
pub fn filter_steps(profile: &Filter, locks: &LockFilter, is_sent: bool) -> (Vec<Step>, Vec<Step>) {
    if weakened::lacks(Wall::Seccomp) {
        return (Vec::new(), Vec::new());
    }
    let watch = |filter: &Filter| match locks.calls {
        LockCalls::Watched => {
            RestrictStep::WatchLocks { name: filter.name.clone(), program: filter.bytes() }.into()
        }
        LockCalls::Refused => install(filter),
    };
    let calls = if is_sent { &AFTER_FILTER[..] } else { &AFTER_FILTER[1..] };
    if !lets_through(profile, calls) {
        return (vec![watch(&locks.filter)], vec![install(profile)]);
    }
    let both = profile.then(&locks.filter).filter(|both| lets_through(both, &SEND_LISTENER));
    let apart = || vec![watch(&locks.filter), install(profile)];
    (both.map_or_else(apart, |both| vec![watch(&both)]), Vec::new())
}

/// The step that installs `filter`.
pub fn install(filter: &Filter) -> Step {
    RestrictStep::InstallFilter { name: filter.name.clone(), program: filter.bytes() }.into()
}

/// The steps that create the Landlock rules: everything may be read and executed; only the
/// sandbox's own directories, its devices, and what a run asked for may be written. They come after
/// all mounts, since a rule is about the file that a path leads to.
pub fn rule_steps(landlock: Landlock, input: &PlanInput<'_>) -> Vec<Step> {
    // The sandbox's file system is mounted, and its descriptor is free for the rules.
    let allow = |path: &CStr, allowed| -> Step {
        RestrictStep::AllowBelow { path: path.into(), allowed, fd: ROOT_FD }.into()
    };
    let (handled, scoped) = (landlock.handled(), landlock.scoped());
    let everything = landlock.writable_directory();
    let mut steps = vec![
        RestrictStep::CreateRules { handled, scoped }.into(),
        allow(c"/", landlock.readable()),
    ];
    steps.extend(input.root.devices.iter().map(|node| allow(&node.target, landlock.device())));
    steps.extend(input.root.writable.iter().map(|path| allow(path, everything)));
    steps.extend(input.terminal_fd.map(|_| allow(TERMINALS, landlock.device())));
    let mounted = input.workspace.iter().flat_map(|workspace| workspace.mounts());
    steps.extend(mounted.map(|(_, path)| allow(path, everything)));
    for tree in input.trees.iter().filter(|tree| tree.access == Access::ReadWrite) {
        let rights = if tree.directory { everything } else { landlock.writable_file() };
        steps.push(allow(&tree.target, rights));
    }
    steps.extend(input.tmpfs.iter().map(|tmpfs| allow(&tmpfs.target, everything)));
    if input.message_queues {
        steps.push(MountStep::MountQueues.into());
        steps.push(allow(QUEUES, everything));
    }
    steps
}

/// The steps that restrict the process to the rules, and prove it with an attempt to create the
/// file `refused` where its mounts and modes would allow any file.
pub fn restrict_self_steps(landlock: Landlock, refused: &CStr) -> [Step; 2] {
    let flags = landlock.restrict_flags();
    let restrict = RestrictStep::RestrictSelf { flags };
    [restrict.into(), RestrictStep::ProveRules { path: refused.to_owned() }.into()]
}
