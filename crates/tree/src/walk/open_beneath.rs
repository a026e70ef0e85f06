//! Opens one entry of a directory without following links or crossing mounts.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::NixPath;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;
use nix::unistd::linkat;

use cofferdam_core::weakened::{self, Wall};

/// Where a name may lead: to what lies below, without links and mounts.
const RESOLVE: ResolveFlag = ResolveFlag::RESOLVE_BENEATH
    .union(ResolveFlag::RESOLVE_NO_SYMLINKS)
    .union(ResolveFlag::RESOLVE_NO_MAGICLINKS)
    .union(ResolveFlag::RESOLVE_NO_XDEV);

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

/// Opens `path` below `parent` without reading it: a file of any type, also a link, if it is the last part.
/// A link before that fails with `ELOOP`.
pub(crate) fn open_path<P: NixPath + ?Sized>(
    parent: impl AsFd,
    path: &P,
) -> Result<OwnedFd, Errno> {
    open(parent, path, OFlag::O_PATH)
}

/// Opens the file of `opened`, an `O_PATH` descriptor, for reading. This resolves no name, so it is
/// the file that the caller has checked.
pub(crate) fn reopen_for_reading(opened: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let link = format!("/proc/thread-self/fd/{}", opened.as_raw_fd());
    // A lease on the file would block the open otherwise.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    openat(AT_FDCWD, link.as_str(), flags, Mode::empty())
}

/// Opens `directory` again for listing: the caller's descriptor may be `O_PATH` or already read.
pub(crate) fn open_listing(directory: BorrowedFd<'_>) -> Result<Dir, Errno> {
    let open = |quietly| {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | quietly;
        Dir::openat(directory, c".", flags, Mode::empty())
    };
    match open(OFlag::O_NOATIME) {
        // Only the owner may use O_NOATIME.
        Err(Errno::EPERM) => open(OFlag::empty()),
        opened => opened,
    }
}

fn open<P: NixPath + ?Sized>(parent: impl AsFd, name: &P, flags: OFlag) -> Result<OwnedFd, Errno> {
    let resolve = if weakened::lacks(Wall::Beneath) { ResolveFlag::empty() } else { RESOLVE };
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | flags)
        .resolve(resolve);
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

/// Creates a file without a name in `parent` and opens it for writing. Only the owner can open it.
pub(crate) fn create_unnamed(parent: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(parent, c".", flags, Mode::S_IRUSR | Mode::S_IWUSR)
}

/// Gives the file of [`create_unnamed`] the name `name` in `parent`. Fails with `EEXIST` if the name exists.
pub(crate) fn link_unnamed<P: NixPath + ?Sized>(
    file: impl AsFd,
    parent: impl AsFd,
    name: &P,
) -> Result<(), Errno> {
    let link = format!("/proc/thread-self/fd/{}", file.as_fd().as_raw_fd());
    linkat(AT_FDCWD, link.as_str(), parent, name, AtFlags::AT_SYMLINK_FOLLOW)
}
