//! Entries of a layer that are no directories: created, copied, removed.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, mknodat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use crate::error::{During, WorkspaceFault};
use crate::remove::remove_tree;
use crate::status;

/// What is at a name of the target of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Below {
    Nothing,
    Directory,
    /// A file, a link, a special file or a whiteout.
    Other,
}

pub(super) fn below(parent: BorrowedFd<'_>, name: &CStr) -> Result<Below, WorkspaceFault> {
    match fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) if status::file_type(&stat) == SFlag::S_IFDIR => Ok(Below::Directory),
        Ok(_) => Ok(Below::Other),
        Err(Errno::ENOENT) => Ok(Below::Nothing),
        Err(errno) => Err(errno).during("stat"),
    }
}

/// Removes the entry `name` of `parent`, of any type.
pub(super) fn remove(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), WorkspaceFault> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EISDIR) => {}
        Err(errno) => return Err(errno).during("unlink"),
    }
    let removed = remove_tree(parent, OsStr::from_bytes(name.to_bytes()));
    let removal = removed.map_err(|error| WorkspaceFault::from_tree(&error))?;
    if removal.left == 0 { Ok(()) } else { Err(Errno::ENOTEMPTY).during("remove") }
}

/// Whether the entry with status `stat` removes what lies below.
pub(super) fn is_whiteout(stat: &FileStat) -> bool {
    status::file_type(stat) == SFlag::S_IFCHR && stat.st_rdev == 0
}

pub(super) fn make_whiteout(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), WorkspaceFault> {
    mknodat(parent, name, SFlag::S_IFCHR, Mode::empty(), 0).during("make whiteout")
}

/// Creates the special file `name` like one with status `stat`.
pub(super) fn make_special(
    parent: BorrowedFd<'_>,
    name: &CStr,
    stat: &FileStat,
) -> Result<(), WorkspaceFault> {
    let mode = Mode::from_bits_truncate(stat.st_mode);
    mknodat(parent, name, status::file_type(stat), mode, stat.st_rdev).during("make special file")
}

/// The copies of files with several names, each kept under the number of the inode of its source until
/// the application ends: paths to the first of them may be too long for the kernel.
#[derive(Debug)]
pub(super) struct HardLinks<'target> {
    /// An empty directory on the file system of the target.
    pub(super) scratch: BorrowedFd<'target>,
}

impl HardLinks<'_> {
    /// Links `name` to the copy that was made of the file with status `stat`, if one was.
    pub(super) fn link(
        &self,
        stat: &FileStat,
        parent: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<bool, WorkspaceFault> {
        if stat.st_nlink < 2 {
            return Ok(false);
        }
        let kept = stat.st_ino.to_string();
        match linkat(self.scratch, kept.as_str(), parent, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno).during("link"),
        }
    }

    /// Keeps the copy `name` of the file with status `stat` for its other names.
    pub(super) fn keep(
        &self,
        stat: &FileStat,
        parent: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<(), WorkspaceFault> {
        if stat.st_nlink < 2 {
            return Ok(());
        }
        let kept = stat.st_ino.to_string();
        linkat(parent, name, self.scratch, kept.as_str(), AtFlags::empty()).during("link")
    }
}

/// Opens the directory `name` of `parent`.
pub(super) fn open_directory(
    parent: BorrowedFd<'_>,
    name: &CStr,
) -> Result<OwnedFd, WorkspaceFault> {
    crate::walk::open_beneath::open_directory(parent.as_fd(), name).during("open")
}
