//! The calls of those steps that mount: trees, the sandbox's own file system, masks.

use std::ffi::{CStr, CString};

use super::encode::{Arg, Encoder};
use super::step::{Access, PROC_REGISTER, Register, SCRATCH_REGISTER};
use crate::init::wire;

pub const AT_FDCWD: i64 = libc::AT_FDCWD as i64;
pub const EMPTY_PATH: i64 = libc::AT_EMPTY_PATH as i64;
const NO_FOLLOW: i64 = libc::AT_SYMLINK_NOFOLLOW as i64;
pub const RECURSIVE: i64 = libc::AT_RECURSIVE as i64;
const OPEN_TREE_CLONE: i64 = 1;
const OPEN_TREE_CLOEXEC: i64 = libc::O_CLOEXEC as i64;
pub const MOVE_MOUNT_F_EMPTY_PATH: i64 = 4;
const FSOPEN_CLOEXEC: i64 = 1;
const FSMOUNT_CLOEXEC: i64 = 1;
const FSCONFIG_CMD_CREATE: i64 = 6;
const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_NOEXEC: u64 = 0x8;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
pub const SHOWN_READ_ONLY: u64 = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY;

/// A name below a descriptor is one part, so that not following it is following no link at all:
/// one that has become a link is copied as a link, which no directory can be covered with.
pub fn open_tree(
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

pub fn attributes_of(access: Access) -> u64 {
    match access {
        Access::ReadOnly => SHOWN_READ_ONLY,
        Access::ReadWrite => MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
        // The node's mode and times; what is written to a device is not written to its node.
        Access::Device => MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY,
    }
}

/// The view is put where the file system itself already is, on top of it, so that letting go of
/// the old root lets go of that too.
pub fn seal_root(out: &mut Encoder, fd: i32, mountpoint: &CString) {
    let scratch = Arg::Register(SCRATCH_REGISTER);
    let empty = out.text(c"");
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | EMPTY_PATH;
    out.call_into(SCRATCH_REGISTER, libc::SYS_open_tree, &[fd.into(), empty, flags.into()]);
    set_attributes(out, scratch, SHOWN_READ_ONLY, None, 0);
    attach(out, scratch, mountpoint);
    out.call(libc::SYS_fchdir, &[scratch]);
}

/// `mount_setattr` on a tree held open.
pub fn set_attributes(
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

pub fn attach(out: &mut Encoder, tree: Arg, target: &CString) {
    let (empty, target) = (out.text(c""), out.text(target));
    let flags = MOVE_MOUNT_F_EMPTY_PATH.into();
    out.call(libc::SYS_move_mount, &[tree, empty, AT_FDCWD.into(), target, flags]);
}

/// What is at `place` holds names inside the box's own file system, made by `box_fs`: no path of
/// the host's reaches overlay's option string, so none needs escaping.
pub fn mount_overlay(out: &mut Encoder, place: &str, target: &CStr) {
    let kind = out.text(c"overlay");
    let target = out.text(target);
    let options =
        format!("lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work,volatile\0");
    let options = out.bytes(options.as_bytes());
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    out.call(libc::SYS_mount, &[kind, target, kind, flags.into(), options]);
}

pub fn mount_proc(out: &mut Encoder) {
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

/// The other is closed when it replaces the old one, and by [`Step::CloseFrom`] where it came by.
pub fn open_null_stdin(out: &mut Encoder) {
    let path = out.text(c"/dev/null");
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    out.call_into(SCRATCH_REGISTER, libc::SYS_openat, &[AT_FDCWD.into(), path, flags.into()]);
    out.call(libc::SYS_dup3, &[Arg::Register(SCRATCH_REGISTER), 0.into(), 0.into()]);
}

pub fn mask(out: &mut Encoder, with: &'static str, target: &CString, may_be_closed: bool) {
    let with = out.bytes(format!("{with}\0").as_bytes());
    // Below /proc nobody puts a link in the place of a file, so one call that would follow it will
    // do. It leaves no copy behind where the target is missing: to let go of a copy that is not
    // attached, the kernel waits for every CPU.
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
