//! The steps of the init before the program's process exists.

use std::ffi::{CStr, CString};

use crate::init::wire::REGISTERS;
use crate::plan::encode::{Register, TREES_REGISTER};
use crate::plan::input::{PlanInput, PlannedTree, ProgramSource, ROOT_FD, TASKS_FD};
use crate::plan::restrictions::rule_steps;
use crate::plan::rootfs::{ShownPath, VAR_TMP};
use crate::plan::steps::Step;
use crate::plan::steps::mount::{Access, MountStep};
use crate::plan::steps::process::ProcessStep;
use crate::plan::steps::start::StartStep;
use cofferdam_core::SetupFailure;

/// The host name of every sandbox.
pub const HOSTNAME: &CStr = c"sandbox";

/// The steps of the init before it forks the program's process.
pub fn setup_steps(input: &PlanInput<'_>) -> Result<Vec<Step>, SetupFailure> {
    // First: a CPU group may have no room for a real-time process.
    let mut steps =
        vec![Step::from(ProcessStep::ResetScheduling { short_slices: input.short_slices })];
    let groups = TASKS_FD..TASKS_FD + input.task_files;
    steps.extend(groups.map(|fd| Step::from(ProcessStep::JoinCgroup { fd })));
    steps.extend(input.net_fd.map(|fd| Step::from(ProcessStep::JoinNetwork { fd })));
    if input.unprivileged {
        // The namespace was cloned with the sandbox: a thread without privileges cannot create one
        // and return to its own.
        steps.push(ProcessStep::RaiseLoopback.into());
    }
    steps.extend(root_steps(input)?.into_iter().map(Step::from));
    if let Some(landlock) = input.landlock {
        steps.extend(rule_steps(landlock, input));
    }
    steps.push(ProcessStep::SetHostname { name: HOSTNAME.to_owned() }.into());
    steps.push(ProcessStep::SetUmask { mask: 0o022 }.into());
    // Last: the program's process, which comes next, waits until the init releases this lock.
    steps.push(StartStep::HoldProgram.into());
    Ok(steps)
}

/// The steps that mount the sandbox's root and enter it.
fn root_steps(input: &PlanInput<'_>) -> Result<Vec<MountStep>, SetupFailure> {
    let mut steps = vec![MountStep::MakeMountsPrivate];
    let (open, mut attach) = tree_steps(input)?;
    // Sources are opened under the host's root, and attached under the sandbox's: no link in one
    // can redirect a path in the other.
    steps.extend(open);
    let mountpoint = input.mountpoint.to_owned();
    steps.push(MountStep::EnterRoot { fd: ROOT_FD, mountpoint });
    if input.unprivileged {
        let taken = Register::try_from(attach.len()).unwrap_or(Register::MAX);
        let (seal, open_again) = seal_steps(input, TREES_REGISTER.saturating_add(taken));
        steps.extend(seal);
        attach.splice(0..0, open_again);
    }
    // Before the old root's `/proc` is gone: in a user namespace a new one may show no more than
    // a visible one does.
    steps.push(MountStep::MountProc);
    steps.push(MountStep::PivotRoot);
    steps.extend(workspace_steps(input, &mut attach));
    steps.extend(attach);
    if input.overlay {
        steps.push(MountStep::MountOverlay);
    }
    let layers = input.layers.iter().cloned().enumerate();
    steps.extend(layers.map(|(index, layer)| MountStep::MountLayer { index, layer }));
    steps.extend(input.tmpfs.iter().map(|tmpfs| MountStep::MountTmpfs {
        target: tmpfs.target.clone(),
        bytes_max: tmpfs.bytes_max,
        inodes_max: input.limits.disk_inodes_max,
        uid: input.host_id,
        gid: input.host_id,
    }));
    steps.extend(mask_steps(input));
    // After the masks: a program below a masked path is not there, and this does not show it.
    if let ProgramSource::Mounted { fd, at } = input.program {
        steps.push(MountStep::AttachProgram { fd, target: at.to_owned() });
    }
    Ok(steps)
}

/// The steps that attach the mounts of a workspace before the binds, which may be in there. Those that lie in a tree
/// of the root are put behind that into `attach`.
fn workspace_steps(input: &PlanInput<'_>, attach: &mut Vec<MountStep>) -> Vec<MountStep> {
    let mounts = input.workspace.iter().flat_map(|workspace| workspace.mounts());
    let (in_trees, own): (Vec<_>, Vec<_>) =
        mounts.partition(|(_, target)| is_in_tree(input, target));
    let attached = |(fd, target): (i32, &CStr)| {
        let target = target.to_owned();
        MountStep::AttachWorkspace { fd, target }
    };
    // The trees of the root come first among all trees.
    let of_root = attach.iter().position(|step| !is_of_root(input, step)).unwrap_or(attach.len());
    attach.splice(of_root..of_root, in_trees.into_iter().map(attached));
    let terminals = input.terminal_fd.map(|fd| MountStep::AttachTerminals { fd });
    own.into_iter().map(attached).chain(terminals).collect()
}

/// Whether `target` lies below a tree of the root.
fn is_in_tree(input: &PlanInput<'_>, target: &CStr) -> bool {
    input.root.shown.iter().any(|shown| {
        let rest = target.to_bytes().strip_prefix(shown.target.to_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"/"))
    })
}

/// Whether `step` attaches something that every sandbox has of the root.
fn is_of_root(input: &PlanInput<'_>, step: &MountStep) -> bool {
    let MountStep::AttachTree { target, .. } = step else { return false };
    let own = input.root.writable.iter();
    let all = input.root.shown.iter().chain(&input.root.devices).map(|shown| &shown.target);
    own.chain(all).any(|of_root| of_root == target)
}

/// The steps that cover the masked paths, and `/var/tmp` where the root has its own.
fn mask_steps(input: &PlanInput<'_>) -> impl Iterator<Item = MountStep> {
    let masked = input.root.masks.iter().chain(input.masked);
    let masks = masked.map(|masked| MountStep::Mask {
        with: input.root.mask_for(masked),
        may_be_closed: input.root.is_below_unowned(&masked.target),
        target: masked.target.clone(),
    });
    let var_tmp =
        || MountStep::Mask { with: VAR_TMP, target: c"var/tmp".to_owned(), may_be_closed: false };
    masks.chain(input.root.masks_var_tmp.then(var_tmp))
}

/// The steps that open every tree and those that attach them.
fn tree_steps(input: &PlanInput<'_>) -> Result<(Vec<MountStep>, Vec<MountStep>), SetupFailure> {
    let shown = |access| {
        move |shown: &ShownPath| PlannedTree {
            source: shown.source.clone(),
            target: shown.target.clone(),
            access,
            directory: access == Access::ReadOnly,
            idmap_fd: input.unowned_fd.filter(|_| shown.unowned),
        }
    };
    // In a mount namespace of less privilege, the kernel copies a directory only together with the
    // mounts that hide parts of it.
    let with_mounts = input.unprivileged;
    let of_root = input.root.shown.len();
    let root = input.root.shown.iter().map(shown(Access::ReadOnly));
    let devices = input.root.devices.iter().map(shown(Access::Device));
    let trees: Vec<PlannedTree> = root.chain(devices).chain(input.trees.iter().cloned()).collect();
    let sealed = if input.unprivileged { input.root.writable.len() } else { 0 };
    if trees.len() + sealed > REGISTERS - usize::from(TREES_REGISTER) {
        return Err(SetupFailure::from_words("bind", "too many paths to show"));
    }
    let mut open = Vec::with_capacity(trees.len());
    let mut attach = Vec::with_capacity(trees.len());
    for (register, tree) in (TREES_REGISTER..Register::MAX).zip(trees) {
        let PlannedTree { source, target, access, idmap_fd, .. } = tree;
        let below = input.root_fd.filter(|_| usize::from(register - TREES_REGISTER) < of_root);
        // An entry of a given root has the same name in the root as in the sandbox.
        let source = if below.is_some() { target.clone() } else { source };
        open.push(MountStep::OpenTree { source, below, access, idmap_fd, register, with_mounts });
        attach.push(MountStep::AttachTree { register, target });
    }
    if let Some(fd) = input.root_fd {
        // Attached, the given root may hide the paths of the other sources, so those open first.
        open.rotate_left(of_root);
        let attached = MountStep::AttachRoot { fd, mountpoint: input.mountpoint.to_owned() };
        open.insert(open.len() - of_root, attached);
    }
    Ok((open, attach))
}

/// The steps that make the sandbox's own file system read-only except for its writable
/// directories, and those that attach these. Without privileges the tenant's uid owns all of it.
fn seal_steps(input: &PlanInput<'_>, first: Register) -> (Vec<MountStep>, Vec<MountStep>) {
    let (mut seal, mut attach) = (Vec::new(), Vec::new());
    for (register, directory) in (first..Register::MAX).zip(&input.root.writable) {
        seal.push(MountStep::OpenTree {
            source: directory.clone(),
            below: None,
            access: Access::ReadWrite,
            idmap_fd: None,
            register,
            with_mounts: false,
        });
        attach.push(MountStep::AttachTree { register, target: directory.clone() });
    }
    let mountpoint = CString::from(input.mountpoint);
    seal.push(MountStep::SealRoot { fd: ROOT_FD, mountpoint });
    (seal, attach)
}
