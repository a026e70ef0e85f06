//! The system calls of layers that have no safe wrapper, one function each.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::sys::{done, owned};

const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: libc::c_uint = 0x40;
const FSPICK_CLOEXEC: libc::c_uint = 0x1;
const FSPICK_EMPTY_PATH: libc::c_uint = 0x8;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const MOUNT_ATTR_RDONLY: libc::c_uint = 0x1;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
const MOUNT_ATTR_NOSUID: libc::c_uint = 0x2;
const MOUNT_ATTR_NODEV: libc::c_uint = 0x4;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSCONFIG_CMD_RECONFIGURE: libc::c_uint = 7;

/// Attaches the detached `mount` to the directory `path` of the calling thread.
pub(in crate::layers) fn attach(mount: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    // SAFETY: both texts are NUL-terminated and outlive the call.
    done(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    })
}

/// Attaches the detached `mount` over the file or directory `place` of the calling thread.
pub(super) fn attach_over(mount: BorrowedFd<'_>, place: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both texts are NUL-terminated and static.
    done(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            place.as_raw_fd(),
            c"".as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH,
        )
    })
}

/// Makes the detached `mount` read-only. Nosuid, nodev.
pub(super) fn make_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    let set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    set_attributes(mount, [u64::from(set), 0, 0, 0])
}

/// Maps the owners of files in the detached `mount` by the user namespace `userns`.
pub(super) fn map_ids(mount: BorrowedFd<'_>, userns: BorrowedFd<'_>) -> io::Result<()> {
    let userns = u64::from(userns.as_raw_fd().unsigned_abs());
    set_attributes(mount, [MOUNT_ATTR_IDMAP, 0, 0, userns])
}

/// Calls `mount_setattr` with the words of a struct mount_attr.
fn set_attributes(mount: BorrowedFd<'_>, attributes: [u64; 4]) -> io::Result<()> {
    // SAFETY: the path is NUL-terminated; `attributes` has the layout of a struct mount_attr and the
    // length given.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of_val(&attributes),
        )
    })
}

/// Creates a file system of the type `kind`, mounted nowhere. Nosuid, nodev.
pub(in crate::layers) fn mount_detached(
    kind: &CStr,
    options: &[(&CStr, Option<&CStr>)],
) -> io::Result<OwnedFd> {
    // SAFETY: the name is NUL-terminated; the result is a descriptor that nothing else owns.
    let context = unsafe { owned(libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC)) }?;
    set_options(&context, options)?;
    configure(&context, FSCONFIG_CMD_CREATE, None, None)?;
    // SAFETY: integers only; the result is a descriptor that nothing else owns.
    unsafe {
        owned(libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            FSMOUNT_CLOEXEC,
            MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
        ))
    }
}

/// Changes options of the file system whose mount has the root `root`. An option without a value is a
/// flag.
pub(in crate::layers) fn reconfigure(
    root: BorrowedFd<'_>,
    options: &[(&CStr, Option<&CStr>)],
) -> io::Result<()> {
    let flags = FSPICK_CLOEXEC | FSPICK_EMPTY_PATH;
    // SAFETY: the path is NUL-terminated and static; the result is a descriptor that nothing else owns.
    let context =
        unsafe { owned(libc::syscall(libc::SYS_fspick, root.as_raw_fd(), c"".as_ptr(), flags)) }?;
    set_options(&context, options)?;
    configure(&context, FSCONFIG_CMD_RECONFIGURE, None, None)
}

fn set_options(context: &OwnedFd, options: &[(&CStr, Option<&CStr>)]) -> io::Result<()> {
    for (key, value) in options {
        let command = if value.is_some() { FSCONFIG_SET_STRING } else { FSCONFIG_SET_FLAG };
        configure(context, command, Some(key), *value)?;
    }
    Ok(())
}

fn configure(
    context: &OwnedFd,
    command: libc::c_uint,
    key: Option<&CStr>,
    value: Option<&CStr>,
) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: each text is NUL-terminated and outlives the call, or absent where the command takes none.
    done(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_fd().as_raw_fd(),
            command,
            pointer(key),
            pointer(value),
            0,
        )
    })
}
