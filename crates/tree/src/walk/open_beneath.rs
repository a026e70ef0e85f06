//! Opens one entry of a directory without following links or crossing mounts.

use std::os::fd::{AsFd, OwnedFd};

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;

/// Opens the directory `name` of `parent`. A link fails with `ELOOP` or `ENOTDIR`, a mount
/// point with `EXDEV`.
pub(crate) fn open_directory<P: NixPath + ?Sized>(
    parent: impl AsFd,
    name: &P,
) -> Result<OwnedFd, Errno> {
    open(parent, name, OFlag::O_DIRECTORY)
}

/// Opens `name` of `parent` for reading, without blocking on a fifo. The caller checks the type
/// before it reads.
pub(crate) fn open_for_reading<P: NixPath + ?Sized>(
    parent: impl AsFd,
    name: &P,
) -> Result<OwnedFd, Errno> {
    open(parent, name, OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
}

/// As [`open_for_reading`], without changing the file's access time where that is permitted.
pub(crate) fn open_for_reading_quietly<P: NixPath + ?Sized>(
    parent: impl AsFd,
    name: &P,
) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    match open(parent.as_fd(), name, flags | OFlag::O_NOATIME) {
        Err(Errno::EPERM) => open(parent, name, flags),
        opened => opened,
    }
}

fn open<P: NixPath + ?Sized>(parent: impl AsFd, name: &P, flags: OFlag) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | flags)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS
                | ResolveFlag::RESOLVE_NO_XDEV,
        );
    openat2(parent, name, how)
}

/// Creates the file `name` in `parent` and opens it for writing. Fails with `EEXIST` if the name
/// exists. Only the owner can open the file until its final mode is set.
pub(crate) fn create_file<P: NixPath + ?Sized>(
    parent: impl AsFd,
    name: &P,
) -> Result<OwnedFd, Errno> {
    // O_EXCL with O_CREAT does not follow a link in the last component, and `name` has only one.
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(parent, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
}
