//! The steps that mount: trees, the sandbox's own file system, masks.

use std::ffi::{CStr, CString};

use crate::init::wire;
use crate::plan::encode::{
    AT_FDCWD, Arg, EMPTY_PATH, Encoder, PROC_REGISTER, Register, SCRATCH_REGISTER,
};
use crate::plan::rootfs::{QUEUES, TERMINALS, c_string, layer_directory, lossy, lossy_inside};

const NO_FOLLOW: i64 = libc::AT_SYMLINK_NOFOLLOW as i64;
const RECURSIVE: i64 = libc::AT_RECURSIVE as i64;
const OPEN_TREE_CLONE: i64 = 1;
const OPEN_TREE_CLOEXEC: i64 = libc::O_CLOEXEC as i64;
const MOVE_MOUNT_F_EMPTY_PATH: i64 = 4;
const FSOPEN_CLOEXEC: i64 = 1;
const FSMOUNT_CLOEXEC: i64 = 1;
const FSCONFIG_CMD_CREATE: i64 = 6;
const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_NOEXEC: u64 = 0x8;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
const SHOWN_READ_ONLY: u64 = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY;

/// How a bound tree may be used. Set-uid bits never work, and devices only with [`Access::Device`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read-only.
    ReadOnly,
    /// Writable with the rights of the host's file system.
    ReadWrite,
    /// A device node that works.
    Device,
}

/// A directory of the root with a layer above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedLayer {
    /// The descriptor of a mount of it.
    pub fd: i32,
    /// The descriptor of the user namespace that maps its owner to the tenant.
    pub idmap_fd: Option<i32>,
    /// Its path inside, relative to the root.
    pub target: CString,
}

/// A step that mounts a part of the sandbox's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountStep {
    /// Make all mounts private: later mounts here do not appear on the host, nor the reverse.
    MakeMountsPrivate,
    /// Copy the mount at a host path without attaching it, and also the mounts below it if
    /// `with_mounts`. With `below`, `source` is a name in that descriptor's directory and never a
    /// link.
    OpenTree {
        source: CString,
        below: Option<i32>,
        access: Access,
        idmap_fd: Option<i32>,
        register: Register,
        with_mounts: bool,
    },
    /// Attach the mounts of a given root at `fd` to `mountpoint`: they can be copied only while
    /// attached.
    AttachRoot { fd: i32, mountpoint: CString },
    /// Attach the sandbox's own file system to `mountpoint` and make it the working directory.
    EnterRoot { fd: i32, mountpoint: CString },
    /// Cover that file system with a read-only view of it.
    SealRoot { fd: i32, mountpoint: CString },
    /// Attach an opened tree.
    AttachTree { register: Register, target: CString },
    /// Attach the program's file, whose mount is at `fd`, over `target`, read-only.
    AttachProgram { fd: i32, target: CString },
    /// Attach the mounts at `fd`, which outlive the sandbox, writable.
    AttachWorkspace { fd: i32, target: CString },
    /// Attach the file system of terminals at `fd`.
    AttachTerminals { fd: i32 },
    /// Mount a tmpfs at `target`.
    MountTmpfs { target: CString, bytes_max: u64, inodes_max: u64, uid: u32, gid: u32 },
    /// Mount `/workspace`: the template below, the sandbox's file system above.
    MountOverlay,
    /// Mount a directory of the root with the sandbox's layer `index` above it.
    MountLayer { index: usize, layer: PlannedLayer },
    /// Mount `/proc` of this PID namespace, read-only, and keep a writable view in a register.
    MountProc,
    /// Cover a masked path. A missing one is skipped, and with `may_be_closed` one that cannot be
    /// reached, since root has no more rights there than a tenant.
    Mask { with: &'static str, target: CString, may_be_closed: bool },
    /// Make the sandbox's file system the root and detach the host's.
    PivotRoot,
    /// Mount the message queues of this IPC namespace, so that a rule can name them.
    MountQueues,
}

impl MountStep {
    /// The step's name in an error: the operation and its target.
    pub fn name(&self) -> String {
        match self {
            Self::MakeMountsPrivate => "private mounts".into(),
            Self::OpenTree { source, below: None, .. } => format!("bind {}", lossy(source)),
            Self::OpenTree { source, .. } => format!("bind {} of the root", lossy_inside(source)),
            Self::AttachRoot { .. } => "attach root".into(),
            Self::EnterRoot { .. } => "mount root".into(),
            Self::SealRoot { .. } => "seal root".into(),
            Self::AttachTree { target, .. } => format!("attach {}", lossy_inside(target)),
            Self::AttachProgram { target, .. } => {
                format!("attach program {}", lossy_inside(target))
            }
            Self::AttachWorkspace { target, .. } => {
                format!("attach workspace {}", lossy_inside(target))
            }
            Self::AttachTerminals { .. } => "attach terminals".into(),
            Self::MountTmpfs { target, .. } => format!("mount tmpfs {}", lossy_inside(target)),
            Self::MountOverlay => "mount overlay /workspace".into(),
            Self::MountLayer { layer, .. } => {
                format!("mount overlay {}", lossy_inside(&layer.target))
            }
            Self::MountProc => "mount /proc".into(),
            Self::Mask { target, .. } => format!("mask {}", lossy_inside(target)),
            Self::PivotRoot => "pivot_root".into(),
            Self::MountQueues => "landlock queues".into(),
        }
    }

    /// Appends the step's system calls.
    pub fn encode(&self, out: &mut Encoder) {
        match self {
            Self::MakeMountsPrivate => {
                let root = out.text(c"/");
                let change = out.mount_attributes(0, libc::MS_PRIVATE, None);
                out.call(
                    libc::SYS_mount_setattr,
                    &[AT_FDCWD.into(), root, libc::AT_RECURSIVE.into(), change, 32.into()],
                );
            }
            Self::OpenTree { source, below, access, idmap_fd, register, with_mounts } => {
                let depth = if *with_mounts { RECURSIVE } else { 0 };
                open_tree(out, (*below, source), *register, depth);
                let attributes = attributes_of(*access);
                set_attributes(out, Arg::Register(*register), attributes, *idmap_fd, depth);
            }
            Self::AttachRoot { fd, mountpoint } => attach(out, fd.into(), mountpoint),
            Self::EnterRoot { fd, mountpoint } => {
                let (empty, mountpoint) = (out.text(c""), out.text(mountpoint));
                let flags = MOVE_MOUNT_F_EMPTY_PATH.into();
                out.call(
                    libc::SYS_move_mount,
                    &[fd.into(), empty, AT_FDCWD.into(), mountpoint, flags],
                );
                out.call(libc::SYS_fchdir, &[fd.into()]);
            }
            Self::SealRoot { fd, mountpoint } => seal_root(out, *fd, mountpoint),
            Self::AttachTree { register, target } => attach(out, Arg::Register(*register), target),
            Self::AttachProgram { fd, target } => {
                set_attributes(out, fd.into(), SHOWN_READ_ONLY, None, 0);
                attach(out, fd.into(), target);
            }
            Self::AttachWorkspace { fd, target } => {
                set_attributes(out, fd.into(), attributes_of(Access::ReadWrite), None, RECURSIVE);
                attach(out, fd.into(), target);
            }
            Self::AttachTerminals { fd } => attach(out, fd.into(), &TERMINALS.to_owned()),
            Self::MountTmpfs { target, bytes_max, inodes_max, uid, gid } => {
                let options = format!(
                    "mode=0755,size={bytes_max},nr_inodes={inodes_max},uid={uid},gid={gid}\0"
                );
                let (kind, target, options) =
                    (out.text(c"tmpfs"), out.text(target), out.bytes(options.as_bytes()));
                let flags = libc::MS_NOSUID | libc::MS_NODEV;
                out.call(libc::SYS_mount, &[kind, target, kind, flags.into(), options]);
            }
            Self::MountOverlay => mount_overlay(out, ".overlay", c"workspace"),
            Self::MountLayer { index, layer } => {
                let (place, fd) = (layer_directory(*index), Arg::from(layer.fd));
                set_attributes(out, fd, SHOWN_READ_ONLY, layer.idmap_fd, 0);
                attach(out, fd, &c_string(format!("{place}/lower").as_ref()));
                mount_overlay(out, &place, &layer.target);
            }
            Self::MountProc => mount_proc(out),
            Self::Mask { with, target, may_be_closed } => mask(out, with, target, *may_be_closed),
            Self::PivotRoot => {
                // With two equal names the old root is stacked under the new one, and the next
                // call detaches it. No directory is needed for it.
                let (here, root) = (out.text(c"."), out.text(c"/"));
                out.call(libc::SYS_pivot_root, &[here, here]);
                out.call(libc::SYS_umount2, &[here, libc::MNT_DETACH.into()]);
                out.call(libc::SYS_chdir, &[root]);
            }
            Self::MountQueues => {
                let (kind, target) = (out.text(c"mqueue"), out.text(QUEUES));
                let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
                out.call(libc::SYS_mount, &[kind, target, kind, flags.into(), 0.into()]);
            }
        }
    }
}

/// A name below a descriptor has one component, so without following it no link is followed at all.
/// If it has become a link, the link itself is copied, and cannot be attached to a directory.
fn open_tree(
    out: &mut Encoder,
    (below, source): (Option<i32>, &CString),
    register: Register,
    depth: i64,
) {
    let source = out.text(source);
    let (at, follow) = match below {
        Some(fd) => (i64::from(fd), NO_FOLLOW),
        None => (AT_FDCWD, 0),
    };
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | depth | follow;
    out.call_into(register, libc::SYS_open_tree, &[at.into(), source, flags.into()]);
}

fn attributes_of(access: Access) -> u64 {
    match access {
        Access::ReadOnly => SHOWN_READ_ONLY,
        Access::ReadWrite => MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
        // Read-only for the node's mode and times; writes to the device still work.
        Access::Device => MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY,
    }
}

/// The view is attached on top of the file system itself, so that detaching the old root detaches
/// both.
fn seal_root(out: &mut Encoder, fd: i32, mountpoint: &CString) {
    let scratch = Arg::Register(SCRATCH_REGISTER);
    let empty = out.text(c"");
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | EMPTY_PATH;
    out.call_into(SCRATCH_REGISTER, libc::SYS_open_tree, &[fd.into(), empty, flags.into()]);
    set_attributes(out, scratch, SHOWN_READ_ONLY, None, 0);
    attach(out, scratch, mountpoint);
    out.call(libc::SYS_fchdir, &[scratch]);
}

/// Calls `mount_setattr` on an opened tree.
fn set_attributes(
    out: &mut Encoder,
    tree: Arg,
    attributes: u64,
    idmap_fd: Option<i32>,
    depth: i64,
) {
    let idmap = if idmap_fd.is_some() { MOUNT_ATTR_IDMAP } else { 0 };
    let (empty, change) = (out.text(c""), out.mount_attributes(attributes | idmap, 0, idmap_fd));
    out.call(
        libc::SYS_mount_setattr,
        &[tree, empty, (EMPTY_PATH | depth).into(), change, 32.into()],
    );
}

fn attach(out: &mut Encoder, tree: Arg, target: &CString) {
    let (empty, target) = (out.text(c""), out.text(target));
    let flags = MOVE_MOUNT_F_EMPTY_PATH.into();
    out.call(libc::SYS_move_mount, &[tree, empty, AT_FDCWD.into(), target, flags]);
}

/// `place` is a directory of the sandbox's own file system, created by `sandbox_fs`. No host path
/// gets into the overlay's option string, so none needs escaping.
fn mount_overlay(out: &mut Encoder, place: &str, target: &CStr) {
    let kind = out.text(c"overlay");
    let target = out.text(target);
    let options =
        format!("lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work,volatile\0");
    let options = out.bytes(options.as_bytes());
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    out.call(libc::SYS_mount, &[kind, target, kind, flags.into(), options]);
}

fn mount_proc(out: &mut Encoder) {
    let scratch = Arg::Register(SCRATCH_REGISTER);
    let (kind, target, empty) = (out.text(c"proc"), c"proc".to_owned(), out.text(c""));
    out.call_into(SCRATCH_REGISTER, libc::SYS_fsopen, &[kind, FSOPEN_CLOEXEC.into()]);
    out.call(
        libc::SYS_fsconfig,
        &[scratch, FSCONFIG_CMD_CREATE.into(), 0.into(), 0.into(), 0.into()],
    );
    let attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    out.call_into(
        SCRATCH_REGISTER,
        libc::SYS_fsmount,
        &[scratch, FSMOUNT_CLOEXEC.into(), attributes.into()],
    );
    attach(out, scratch, &target);
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | EMPTY_PATH;
    out.call_into(PROC_REGISTER, libc::SYS_open_tree, &[scratch, empty, flags.into()]);
    set_attributes(out, scratch, attributes | MOUNT_ATTR_RDONLY, None, 0);
}

fn mask(out: &mut Encoder, with: &'static str, target: &CString, may_be_closed: bool) {
    let with = out.bytes(format!("{with}\0").as_bytes());
    // Below /proc no file can be replaced by a link, so one call that follows links is enough. If
    // the target is missing, it leaves no copy behind: to drop a copy that is not attached, the
    // kernel waits for every CPU.
    if target.as_bytes().starts_with(b"proc/") {
        let target = out.text(target);
        out.call(libc::SYS_mount, &[with, target, 0.into(), libc::MS_BIND.into(), 0.into()]);
        out.on_error(wire::SKIP_IF_MISSING);
        return;
    }
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;
    out.call_into(SCRATCH_REGISTER, libc::SYS_open_tree, &[AT_FDCWD.into(), with, flags.into()]);
    attach(out, Arg::Register(SCRATCH_REGISTER), target);
    out.on_error(if may_be_closed { wire::SKIP_IF_UNREACHABLE } else { wire::SKIP_IF_MISSING });
}
