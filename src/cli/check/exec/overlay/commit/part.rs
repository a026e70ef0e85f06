//! What a commit is made of, and how it reaches the entries of a directory.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use crate::cli::check::exec::overlay::changes::DirectoryChanges;
use crate::cli::check::exec::overlay::directories::TriedDirectory;
use crate::cli::check::exec::overlay::links::LinkRules;
use crate::cli::check::exec::overlay::protected::ProtectRules;
use crate::cli::check::exec::overlay::states::SeenTree;
use cofferdam_sandbox::engine::OverlaidDirectory;

/// What one directory's commit is made of.
#[derive(Debug, Clone, Copy)]
pub struct CommitPart<'a> {
    pub directory: &'a TriedDirectory,
    pub overlaid: &'a OverlaidDirectory,
    pub changes: &'a DirectoryChanges,
    /// The directory before the command began.
    pub seen: &'a SeenTree,
}

/// What decides on all changes.
#[derive(Debug, Clone, Copy)]
pub struct CommitRules<'a> {
    pub protect: &'a ProtectRules,
    pub links: &'a LinkRules,
    /// The id by which the program sees the group of a directory's files.
    pub host_id: u32,
    /// Whether paths are printed whole.
    pub several: bool,
}

/// Opens the directory `path` beneath `root`, on the same file system and through no link.
pub fn open_parent(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_XDEV,
        );
    openat2(root, OsStr::from_bytes(path), how)
}
