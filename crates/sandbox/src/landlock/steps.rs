//! The steps that make the rules and those that obey them.

use std::ffi::CStr;

use super::Landlock;
use crate::plan::rootfs::QUEUES;
use crate::plan::step::{Access, Step};
use crate::plan::{PlanInput, ROOT_FD};

/// Everything can be read and executed, and written is what is meant to be: the
/// box's own places, its devices, and what a run asked for. Once all is mounted,
/// since a rule is about the file that a path leads to.
pub fn rule_steps(landlock: Landlock, input: &PlanInput<'_>) -> Vec<Step> {
    // The box's file system is where it belongs, and the number it came by is free.
    let allow = |path: &CStr, allowed| Step::AllowBelow { path: path.into(), allowed, fd: ROOT_FD };
    let everything = landlock.writable_directory();
    let mut steps = vec![
        Step::CreateRules { handled: landlock.handled(), scoped: landlock.scoped() },
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
        steps.push(Step::MountQueues);
        steps.push(allow(QUEUES, everything));
    }
    steps
}

/// Obeys the rules and proves it where the process could make any file.
pub fn restrict_self_steps(landlock: Landlock, refused: &CStr) -> [Step; 2] {
    let flags = landlock.restrict_flags();
    [Step::ObeyRules { flags }, Step::ProveRules { path: refused.to_owned() }]
}
