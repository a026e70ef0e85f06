//! Puts whole trees, links and single copies into a workspace.

pub(super) mod copy;
pub(super) mod private_dir;

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FchmodatFlags, FileStat, SFlag, fchmod, fchmodat, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, fchownat, symlinkat, unlinkat};

use self::copy::{CopyPurpose, TreeCopy, service_owner};
use self::private_dir::{Occupied, PrivateDir, replace};
use super::digest::{DirectoryDigest, digest_directory};
use super::error::{FilesError, OnPath};
use super::location::FileLocation;
use super::read::open_regular;
use super::resolve::{DIRECTORY_MODE, MissingParents, ParentDir, ResolvedFile, WorkspaceRoot};
use super::write::{put_file, remove_directories, with_temp_name};
use crate::source::SourceDir;
use crate::status;
use crate::walk::budget::TreeLimits;
use crate::walk::open_beneath;
use crate::walk::stop_check::StopCheck;
use crate::walk::{FileKind, TreeWalk, WalkEvent};

/// Who may change a staged tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StagedAccess {
    /// It belongs to the workspace's owner.
    Writable,
    /// It belongs to the service, and nothing in it has a write permission.
    ReadOnly,
}

impl StagedAccess {
    fn purpose(self) -> CopyPurpose {
        match self {
            Self::Writable => CopyPurpose::Writable,
            Self::ReadOnly => CopyPurpose::ReadOnly,
        }
    }
}

/// Copies the contents of the host's directory `source` to `to`, replacing what is there. Files, directories, and
/// links that stay in the tree are copied; special files are left out.
///
/// # Errors
/// [`FilesError::ThroughLink`] for a link that leads out of the tree, [`FilesError::TooLarge`], and those of writing
/// to `to`. What was there is unchanged then.
pub fn stage_directory(
    root: &WorkspaceRoot<'_>,
    source: &SourceDir,
    to: &FileLocation,
    access: StagedAccess,
    limits: &TreeLimits,
) -> Result<DirectoryDigest, FilesError> {
    let stat = fstat(source.as_fd()).on("stat", source.asked())?;
    stage_tree(root, to, Some(&stat), access, limits, &mut |target| {
        let copy = TreeCopy::new(target, root.owner, access.purpose(), limits);
        copy.run(source.as_fd(), limits.entries_max, &to.shown())
    })
}

/// Copies the file or directory at `from` of the workspace to `to`, replacing what is there: a file by a file or a
/// link only. Links on the way to `from` are followed as in the sandbox.
///
/// # Errors
/// As [`stage_directory`] and [`put_file`], and [`FilesError::IntoItself`] for a directory that contains `to`.
pub fn stage_copy(
    root: &WorkspaceRoot<'_>,
    from: &FileLocation,
    to: &FileLocation,
    limits: &TreeLimits,
) -> Result<(), FilesError> {
    let found = root.find(from, true)?;
    match found.file_type() {
        SFlag::S_IFDIR => stage_found(root, &found, to, limits),
        _ => {
            let ((mut file, stat), _) = open_regular(found)?;
            put_file(root, to, &mut file, stat.st_mode & 0o777).map(|_| ())
        }
    }
}

fn stage_found(
    root: &WorkspaceRoot<'_>,
    found: &ResolvedFile,
    to: &FileLocation,
    limits: &TreeLimits,
) -> Result<(), FilesError> {
    let from = &found.location;
    // A tree can neither contain its copy nor be replaced by it.
    if to.lies_in(from) || from.lies_in(to) {
        return Err(FilesError::IntoItself { path: to.shown() });
    }
    let access = StagedAccess::Writable;
    let staged = stage_tree(root, to, Some(&found.stat), access, limits, &mut |target| {
        let copy = TreeCopy::new(target, root.owner, CopyPurpose::Writable, limits);
        copy.run(found.file.as_fd(), limits.entries_max, &from.shown())
    });
    staged.map(|_| ())
}

/// Fills a directory by `fill` where no program can reach it, and puts it at `to`, replacing what is there. It gets
/// the permissions and the time of `stat`, or 0755.
pub(super) fn stage_tree(
    root: &WorkspaceRoot<'_>,
    to: &FileLocation,
    stat: Option<&FileStat>,
    access: StagedAccess,
    limits: &TreeLimits,
    fill: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), FilesError>,
) -> Result<DirectoryDigest, FilesError> {
    let mut made = Vec::new();
    let mut stage = || {
        let parent = root.parent(to, MissingParents::Make(&mut made))?;
        let staged = PrivateDir::create(&parent)?;
        fill(staged.directory())?;
        let digest = digest_directory(staged.directory(), &to.shown(), limits, StopCheck::never())?;
        let rules = (root.owner, access.purpose());
        let stat = match stat {
            Some(stat) => *stat,
            None => new_directory(staged.directory(), &to.shown())?,
        };
        TreeCopy::settle_top(staged.directory(), &stat, rules, &to.shown())?;
        staged.install(Occupied::Remove)?;
        Ok(digest)
    };
    let staged = stage();
    staged.inspect_err(|_| remove_directories(root, &made))
}

/// Makes a link at `at` that leads to `target`, replacing what is at `at`. Its text is relative if both are in one
/// area.
///
/// # Errors
/// Those of writing to `at`, and [`FilesError::IntoItself`] if `target` is `at` or lies in it.
pub fn stage_link(
    root: &WorkspaceRoot<'_>,
    at: &FileLocation,
    target: &FileLocation,
) -> Result<(), FilesError> {
    if target.lies_in(at) {
        return Err(FilesError::IntoItself { path: at.shown() });
    }
    let mut made = Vec::new();
    let mut link = || {
        let parent = root.parent(at, MissingParents::Make(&mut made))?;
        put_link(root, &parent, &link_text_to(root, at, target), Occupied::Remove)
    };
    let linked = link();
    linked.inspect_err(|_| remove_directories(root, &made))
}

/// Makes a link with this text that takes the place of `parent`.
pub(super) fn put_link(
    root: &WorkspaceRoot<'_>,
    parent: &ParentDir,
    text: &OsStr,
    occupied: Occupied,
) -> Result<(), FilesError> {
    parent.check_writable()?;
    let make = |name: &str| symlinkat(text, &parent.directory, name);
    let ((), name) = with_temp_name(make).on("symlink", &parent.path)?;
    let placed = take_link(root, parent.directory.as_fd(), &name)
        .on("chown", &parent.path)
        .and_then(|()| replace(parent, &name, occupied));
    placed.inspect_err(|_| {
        let _ = unlinkat(&parent.directory, name.as_str(), UnlinkatFlags::NoRemoveDir);
    })
}

/// The status of a new directory with mode 0755.
fn new_directory(directory: BorrowedFd<'_>, path: &Path) -> Result<FileStat, FilesError> {
    let mut stat = fstat(directory).on("stat", path)?;
    stat.st_mode = (SFlag::S_IFDIR.bits()) | DIRECTORY_MODE.bits();
    Ok(stat)
}

/// Takes all write permissions from the contents of `top`, which no program can reach.
pub(super) fn remove_write_permissions(top: BorrowedFd<'_>, path: &Path) -> Result<(), FilesError> {
    let mut walk = TreeWalk::to_choose(top, u64::MAX).on("list", path)?;
    while let Some(event) = walk.advance()? {
        let changed = match &event {
            WalkEvent::Enter { stat, .. } => {
                fchmod(walk.directory(), status::file_mode(stat) - status::WRITE)
            }
            WalkEvent::Entry { name, kind: FileKind::Regular } => {
                let stat = fstatat(walk.directory(), name.as_c_str(), AtFlags::empty());
                let mode = stat.map(|stat| status::file_mode(&stat) - status::WRITE);
                let follow = FchmodatFlags::FollowSymlink;
                mode.and_then(|mode| fchmodat(walk.directory(), name.as_c_str(), mode, follow))
            }
            _ => Ok(()),
        };
        changed.on("chmod", path)?;
    }
    Ok(())
}

/// Gives the link `name` to the owner, by its descriptor.
fn take_link(root: &WorkspaceRoot<'_>, parent: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let link = open_beneath::open_path(parent, name)?;
    let stat = fstat(&link)?;
    if status::file_type(&stat) != SFlag::S_IFLNK || stat.st_uid != service_owner().uid {
        // A program has replaced it.
        return Err(Errno::ESTALE);
    }
    let (uid, gid) = (Some(root.owner.uid()), Some(root.owner.gid()));
    fchownat(&link, c"", uid, gid, AtFlags::AT_EMPTY_PATH | AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// The text of a link at `at` that leads to `target`.
fn link_text_to(root: &WorkspaceRoot<'_>, at: &FileLocation, target: &FileLocation) -> OsString {
    if at.area() != target.area() {
        return root.rule.path_inside(target).into_os_string();
    }
    let above: Vec<_> =
        at.parent().iter().flat_map(FileLocation::parts).map(ToOwned::to_owned).collect();
    let parts: Vec<_> = target.parts().collect();
    let common = above.iter().zip(&parts).take_while(|(one, other)| one == *other).count();
    let mut text = PathBuf::new();
    text.extend(above.iter().skip(common).map(|_| ".."));
    text.extend(parts.iter().skip(common));
    if text.as_os_str().as_bytes().is_empty() { OsString::from(".") } else { text.into_os_string() }
}
