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

/// The host name every box has.
pub const HOSTNAME: &CStr = c"sandbox";

pub fn setup_steps(input: &PlanInput<'_>) -> Result<Vec<Step>, SetupFailure> {
    // First: a CPU group may have no room for a real-time process.
    let mut steps =
        vec![Step::Process(ProcessStep::ResetScheduling { short_slices: input.short_slices })];
    steps.extend(
        (0..input.task_files)
            .map(|file| Step::Process(ProcessStep::JoinCgroup { fd: TASKS_FD + file })),
    );
    steps.extend(input.net_fd.map(|fd| Step::Process(ProcessStep::JoinNetwork { fd })));
    if input.unprivileged {
        // One that was cloned with the box: none made elsewhere could be left again.
        steps.push(Step::Process(ProcessStep::RaiseLoopback));
    }
    steps.push(Step::Mount(MountStep::MakeMountsPrivate));
    let (open, mut attach) = tree_steps(input)?;
    // Sources are opened while the host's paths are what they are, and attached
    // once the box is the root: no link inside either can redirect the other.
    steps.extend(open);
    steps.push(Step::Mount(MountStep::EnterRoot {
        fd: ROOT_FD,
        mountpoint: input.mountpoint.to_owned(),
    }));
    if input.unprivileged {
        let taken = Register::try_from(attach.len()).unwrap_or(Register::MAX);
        let (seal, open_again) = seal_steps(input, TREES_REGISTER.saturating_add(taken));
        steps.extend(seal);
        attach.splice(0..0, open_again);
    }
    // While the old root's is still there: in a user namespace no `/proc` may show more than it.
    steps.push(Step::Mount(MountStep::MountProc));
    steps.push(Step::Mount(MountStep::PivotRoot));
    steps.extend(attach);
    if input.overlay {
        steps.push(Step::Mount(MountStep::MountOverlay));
    }
    let layers = input.layers.iter().cloned().enumerate();
    steps.extend(layers.map(|(index, layer)| Step::Mount(MountStep::MountLayer { index, layer })));
    steps.extend(input.tmpfs.iter().map(|tmpfs| {
        Step::Mount(MountStep::MountTmpfs {
            target: tmpfs.target.clone(),
            bytes_max: tmpfs.bytes_max,
            inodes_max: input.limits.disk_inodes_max,
            uid: input.host_id,
            gid: input.host_id,
        })
    }));
    steps.extend(input.root.masks.iter().chain(input.masked).map(|masked| {
        Step::Mount(MountStep::Mask {
            with: input.root.mask_for(masked),
            may_be_closed: input.root.is_below_unowned(&masked.target),
            target: masked.target.clone(),
        })
    }));
    if input.root.masks_var_tmp {
        steps.push(Step::Mount(MountStep::Mask {
            with: VAR_TMP,
            target: c"var/tmp".to_owned(),
            may_be_closed: false,
        }));
    }
    // After what is masked: a program below that is not there, and not shown by this.
    if let ProgramSource::Mounted { fd, at } = input.program {
        steps.push(Step::Mount(MountStep::AttachProgram { fd, target: at.to_owned() }));
    }
    if let Some(landlock) = input.landlock {
        steps.extend(rule_steps(landlock, input));
    }
    steps.push(Step::Process(ProcessStep::SetHostname { name: HOSTNAME.to_owned() }));
    steps.push(Step::Process(ProcessStep::SetUmask { mask: 0o022 }));
    // Last: the program's process, which comes next, waits for it to be let go of.
    steps.push(Step::Start(StartStep::HoldProgram));
    Ok(steps)
}

/// The steps that open every tree and those that attach them.
fn tree_steps(input: &PlanInput<'_>) -> Result<(Vec<Step>, Vec<Step>), SetupFailure> {
    let shown = |access| {
        move |shown: &ShownPath| PlannedTree {
            source: shown.source.clone(),
            target: shown.target.clone(),
            access,
            directory: access == Access::ReadOnly,
            idmap_fd: input.unowned_fd.filter(|_| shown.unowned),
        }
    };
    // In a namespace of less privilege a directory is only to be had with what masked parts of it.
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
        // What is right below a root that was given is named as it is inside.
        let source = if below.is_some() { target.clone() } else { source };
        open.push(Step::Mount(MountStep::OpenTree {
            source,
            below,
            access,
            idmap_fd,
            register,
            with_mounts,
        }));
        attach.push(Step::Mount(MountStep::AttachTree { register, target }));
    }
    if let Some(fd) = input.root_fd {
        // Where it is attached it may hide what others are opened by, so its own come last.
        open.rotate_left(of_root);
        let attached =
            Step::Mount(MountStep::AttachRoot { fd, mountpoint: input.mountpoint.to_owned() });
        open.insert(open.len() - of_root, attached);
    }
    Ok((open, attach))
}

/// The steps that leave of the box's own file system, all of it the tenant's by uid, only the
/// places meant for it to be written; and those that attach them.
fn seal_steps(input: &PlanInput<'_>, first: Register) -> (Vec<Step>, Vec<Step>) {
    let (mut seal, mut attach) = (Vec::new(), Vec::new());
    for (register, place) in (first..Register::MAX).zip(&input.root.writable) {
        seal.push(Step::Mount(MountStep::OpenTree {
            source: place.clone(),
            below: None,
            access: Access::ReadWrite,
            idmap_fd: None,
            register,
            with_mounts: false,
        }));
        attach.push(Step::Mount(MountStep::AttachTree { register, target: place.clone() }));
    }
    seal.push(Step::Mount(MountStep::SealRoot {
        fd: ROOT_FD,
        mountpoint: CString::from(input.mountpoint),
    }));
    (seal, attach)
}
