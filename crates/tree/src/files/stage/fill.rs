//! Fills a directory that no program can reach with what is staged.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};

use super::access::{StagedAccess, remove_write_permissions};
use super::copy::{TreeCopy, service_owner};
use crate::files::archive::{ArchiveContents, ArchiveLimits, Spool, judge_tree, unpack_tree};
use crate::files::digest::{DirectoryDigest, digest_directory};
use crate::files::error::{FilesError, OnPath};
use crate::files::location::FileLocation;
use crate::files::resolve::{DIRECTORY_MODE, MissingParents, WorkspaceRoot};
use crate::status;
use crate::walk::budget::{TreeBudget, TreeLimits};
use crate::walk::open_beneath;
use crate::walk::stop_check::StopCheck;
use crate::walk::{FileKind, TreeWalk, WalkEvent};
use cofferdam_core::values::owner::Owner;

/// What a staged directory is made of.
#[derive(Debug, Clone, Copy)]
pub enum DirectorySource<'a> {
    /// The contents of an open directory. Files, directories, and links that stay in it are copied; special files are
    /// left out.
    Directory(BorrowedFd<'a>),
    /// An archive, all of whose links must stay in it.
    Archive(&'a Spool, ArchiveLimits),
}

impl DirectorySource<'_> {
    /// How much it contains, for a copy in the empty directory `target`. Nothing is written.
    ///
    /// # Errors
    /// [`FilesError::ArchiveUnsafe`], [`FilesError::TooLarge`], and those of reading.
    pub fn measure(
        &self,
        target: BorrowedFd<'_>,
        limits: &TreeLimits,
        path: &Path,
    ) -> Result<ArchiveContents, FilesError> {
        match self {
            Self::Directory(source) => measure_directory(*source, limits, path),
            Self::Archive(spool, limits) => judge_tree(target, spool, *limits),
        }
    }
}

fn measure_directory(
    source: BorrowedFd<'_>,
    limits: &TreeLimits,
    path: &Path,
) -> Result<ArchiveContents, FilesError> {
    let mut budget = TreeBudget::new(*limits);
    let mut contents = ArchiveContents::default();
    let mut walk = TreeWalk::to_choose(source, limits.entries_max).on("list", path)?;
    while let Some(event) = walk.advance()? {
        if matches!(event, WalkEvent::Leave { .. }) {
            continue;
        }
        let mut counted = budget.take_entry(walk.depth());
        if let WalkEvent::Entry { name, kind: FileKind::Regular } = &event
            && let Ok(stat) =
                fstatat(walk.directory(), name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
        {
            let bytes = u64::try_from(stat.st_size).unwrap_or(0);
            counted = counted.and_then(|()| budget.take_bytes(bytes));
            contents.files += 1;
        }
        counted.map_err(|limit| FilesError::too_large(limit, path))?;
    }
    contents.bytes = budget.bytes();
    Ok(contents)
}

/// Makes a copy of `source` in the empty directory `target`, which no program can reach: it belongs to the service, and
/// has no write permissions. `path` is for errors.
///
/// # Errors
/// As [`StageBatch::directory`](super::batch::StageBatch::directory).
pub fn fill_read_only(
    target: BorrowedFd<'_>,
    source: DirectorySource<'_>,
    limits: &TreeLimits,
    path: &Path,
) -> Result<DirectoryDigest, FilesError> {
    fill(target, source, (service_owner(), StagedAccess::ReadOnly), limits, path)
}

/// Opens the read-only tree at `to`; none if something else is there. No link is followed.
///
/// # Errors
/// There is nothing.
pub fn open_read_only(
    root: &WorkspaceRoot<'_>,
    to: &FileLocation,
) -> Result<Option<OwnedFd>, FilesError> {
    let parent = root.parent(to, MissingParents::Refuse)?;
    match open_beneath::open_directory(&parent.directory, parent.name.as_os_str()) {
        Ok(directory) => {
            let stat = fstat(&directory).on("stat", &parent.path)?;
            Ok(status::is_read_only(&stat, root.owner).then_some(directory))
        }
        Err(Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
        Err(errno) => Err(errno).on("open", &parent.path),
    }
}

/// Like [`fill_read_only`], but the files get the owner and the permissions that `access` selects; `owner` is the
/// owner of the workspace.
pub(super) fn fill(
    target: BorrowedFd<'_>,
    source: DirectorySource<'_>,
    (owner, access): (Owner, StagedAccess),
    limits: &TreeLimits,
    path: &Path,
) -> Result<DirectoryDigest, FilesError> {
    let stat = match source {
        DirectorySource::Directory(source) => {
            let stat = fstat(source).on("stat", path)?;
            let copy = TreeCopy::new(target, owner, access.purpose(), limits);
            copy.run(source, limits.entries_max, path)?;
            Some(stat)
        }
        DirectorySource::Archive(spool, archive_limits) => {
            unpack_tree(target, spool, access.owner(owner), archive_limits)?;
            if access == StagedAccess::ReadOnly {
                remove_write_permissions(target, path)?;
            }
            None
        }
    };
    let digest = digest_directory(target, path, limits, StopCheck::never())?;
    settle(target, stat.as_ref(), (owner, access), path)?;
    Ok(digest)
}

/// Gives `target` the permissions and the time of `stat`, or 0755.
pub(super) fn settle(
    target: BorrowedFd<'_>,
    stat: Option<&FileStat>,
    (owner, access): (Owner, StagedAccess),
    path: &Path,
) -> Result<(), FilesError> {
    let mut own = fstat(target.as_fd()).on("stat", path)?;
    own.st_mode = SFlag::S_IFDIR.bits() | DIRECTORY_MODE.bits();
    TreeCopy::settle_top(target, stat.unwrap_or(&own), (owner, access.purpose()), path)
}
