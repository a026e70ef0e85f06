//! Opening one entry of a directory, and nothing but that entry.

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

/// Opens whatever `name` of `parent` is for reading, without waiting for a writer should it be
/// a fifo: the caller looks at its type before it reads.
pub(crate) fn open_for_reading<P: NixPath + ?Sized>(
    parent: impl AsFd,
    name: &P,
) -> Result<OwnedFd, Errno> {
    open(parent, name, OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
}

/// As [`open_for_reading`], and reading does not show in the file's access time, where that is
/// permitted.
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

/// Creates the file `name` in `parent` and opens it for writing; fails with `EEXIST` if
/// anything has that name. Only its owner may open it until its final mode is set.
pub(crate) fn create_file<P: NixPath + ?Sized>(
    parent: impl AsFd,
    name: &P,
) -> Result<OwnedFd, Errno> {
    // O_EXCL with O_CREAT never follows a link in the last place, and `name` has no other.
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(parent, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
}
