//! Makes, removes and moves entries of a workspace.

use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{RenameFlags, renameat, renameat2};
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::error::{FilesError, OnPath};
use super::location::FileLocation;
use super::resolve::{DIRECTORY_MODE, MissingParents, ParentDir, WorkspaceRoot};
use super::stage::copy::{CopyPurpose, TreeCopy};
use super::stage::private_dir::{Occupied, PrivateDir};
use super::write::{permissions, remove_directories};
use crate::remove::{remove_tree, remove_writable};
use crate::status;
use crate::walk::budget::TreeLimits;
use crate::walk::open_beneath;
use crate::walk::{TreeWalk, WalkEvent};

/// The most passes over a tree to which programs add entries while it is removed.
const REMOVE_PASSES_MAX: u32 = 4;

/// Makes the directory `location` with `mode` (0 is 0755), and missing ones above it.
///
/// # Errors
/// [`FilesError::Exists`] if there is anything, and those of [`put_file`](super::put_file).
pub fn make_directory(
    root: &WorkspaceRoot<'_>,
    location: &FileLocation,
    mode: u32,
) -> Result<(), FilesError> {
    if location.name().is_none() {
        return Err(FilesError::Exists { path: location.shown() });
    }
    let mut made = Vec::new();
    let mut make = || {
        let parent = root.parent(location, MissingParents::Make(&mut made))?;
        parent.check_writable()?;
        let mode = if mode == 0 { DIRECTORY_MODE } else { permissions(mode) };
        let opened = root.make_directory(parent.directory.as_fd(), &parent.name, mode);
        match opened.on("mkdir", &parent.path)? {
            (_, true) => Ok(()),
            (_, false) => Err(Errno::EEXIST).on("mkdir", &parent.path),
        }
    };
    let result = make();
    result.inspect_err(|_| remove_directories(root, &made))
}

/// Removes the entry at `location`: a file, a link itself, an empty directory, or with `recursive` a directory with
/// everything in it.
///
/// # Errors
/// [`FilesError::NotEmpty`]; [`FilesError::ReadOnly`] for what is or contains a read-only tree. Nothing is removed
/// then, unless programs change the tree at the same time.
pub fn delete(
    root: &WorkspaceRoot<'_>,
    location: &FileLocation,
    recursive: bool,
) -> Result<(), FilesError> {
    let parent = root.parent(location, MissingParents::Refuse)?;
    parent.check_writable()?;
    let flag = match existing(&parent)? {
        stat if status::file_type(&stat) != SFlag::S_IFDIR => UnlinkatFlags::NoRemoveDir,
        _ if recursive => return delete_tree(root, &parent),
        _ => UnlinkatFlags::RemoveDir,
    };
    unlinkat(&parent.directory, parent.name.as_os_str(), flag).on("unlink", &parent.path)
}

fn delete_tree(root: &WorkspaceRoot<'_>, parent: &ParentDir) -> Result<(), FilesError> {
    check_tree_writable(root, parent)?;
    for _ in 0..REMOVE_PASSES_MAX {
        let removal = remove_writable(parent.directory.as_fd(), &parent.name, root.owner)?;
        if removal.left == 0 {
            return Ok(());
        }
    }
    Err(Errno::ENOTEMPTY).on("remove", &parent.path)
}

/// Fails if the tree is or contains a read-only one.
fn check_tree_writable(root: &WorkspaceRoot<'_>, parent: &ParentDir) -> Result<(), FilesError> {
    let path = &parent.path;
    let top = open_beneath::open_path(&parent.directory, parent.name.as_os_str());
    let top = top.on("open", path)?;
    let is_read_only = |stat: &FileStat| status::is_read_only(stat, root.owner);
    let refuse = |path: &Path| Err(Errno::EROFS).on("remove", path);
    if is_read_only(&fstat(&top).on("stat", path)?) {
        return refuse(path);
    }
    let mut walk = TreeWalk::to_choose(top.as_fd(), u64::MAX).on("list", path)?;
    while let Some(event) = walk.advance()? {
        match event {
            WalkEvent::Enter { stat, .. } if is_read_only(&stat) => {
                return refuse(&path.join(walk.path()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Moves the entry at `from` to `to`, and makes missing directories above `to`. A link itself is moved. With
/// `overwrite`, a file, a link or an empty directory at `to` is replaced.
///
/// A directory that the file system cannot rename is copied and then removed: an overlay's, from a lower layer.
/// Its copy appears whole; what programs write into the directory meanwhile can be lost.
///
/// # Errors
/// [`FilesError::Exists`], [`FilesError::NotEmpty`], [`FilesError::IntoItself`], [`FilesError::NotRegular`] for a
/// directory and a file that would replace each other, [`FilesError::ReadOnly`] if either lies in a read-only tree,
/// and [`FilesError::TooLarge`] if a copy exceeds `limits`.
pub fn move_entry(
    root: &WorkspaceRoot<'_>,
    (from, to): (&FileLocation, &FileLocation),
    overwrite: bool,
    limits: &TreeLimits,
) -> Result<(), FilesError> {
    let source = root.parent(from, MissingParents::Refuse)?;
    source.check_writable()?;
    let stat = existing(&source)?;
    let is_directory = status::file_type(&stat) == SFlag::S_IFDIR;
    if from == to {
        return if overwrite { Ok(()) } else { Err(FilesError::Exists { path: to.shown() }) };
    }
    if is_directory && to.lies_in(from) {
        return Err(FilesError::IntoItself { path: to.shown() });
    }
    let mut made = Vec::new();
    let mut rename = || {
        let target = root.parent(to, MissingParents::Make(&mut made))?;
        target.check_writable()?;
        match rename_entry(&source, &target, overwrite) {
            Err(Errno::EXDEV) if is_directory => {
                let occupied = if overwrite { Occupied::Rename } else { Occupied::Refuse };
                move_by_copy(root, &source, &target, occupied, limits)
            }
            Err(Errno::EINVAL) => Err(FilesError::IntoItself { path: to.shown() }),
            renamed => renamed.on("rename", &target.path),
        }
    };
    let renamed = rename();
    renamed.inspect_err(|_| remove_directories(root, &made))
}

fn rename_entry(source: &ParentDir, target: &ParentDir, overwrite: bool) -> Result<(), Errno> {
    let (from, to) = (source.name.as_os_str(), target.name.as_os_str());
    if !overwrite {
        let flags = RenameFlags::RENAME_NOREPLACE;
        return renameat2(&source.directory, from, &target.directory, to, flags);
    }
    renameat(&source.directory, from, &target.directory, to)?;
    // A rename between two names of one file does nothing.
    let opened = |parent: &ParentDir| {
        let file = open_beneath::open_path(&parent.directory, parent.name.as_os_str()).ok()?;
        let stat = fstat(file).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    match (opened(source), opened(target)) {
        (Some(left), Some(moved)) if left == moved => {
            unlinkat(&source.directory, from, UnlinkatFlags::NoRemoveDir)
        }
        _ => Ok(()),
    }
}

fn move_by_copy(
    root: &WorkspaceRoot<'_>,
    source: &ParentDir,
    target: &ParentDir,
    occupied: Occupied,
    limits: &TreeLimits,
) -> Result<(), FilesError> {
    if occupied == Occupied::Refuse && target.entry()?.is_some() {
        return Err(FilesError::Exists { path: target.path.clone() });
    }
    let from = open_beneath::open_directory(&source.directory, source.name.as_os_str());
    let from = from.on("open", &source.path)?;
    let stat = fstat(&from).on("stat", &source.path)?;
    let copied = PrivateDir::create(target)?;
    let copy = TreeCopy::new(copied.directory(), root.owner, CopyPurpose::Move, limits);
    copy.run(from.as_fd(), limits.entries_max, &source.path)?;
    let rules = (root.owner, CopyPurpose::Move);
    TreeCopy::settle_top(copied.directory(), &stat, rules, &target.path)?;
    copied.install(occupied)?;
    let removal = remove_tree(source.directory.as_fd(), &source.name)?;
    match removal.left {
        0 => Ok(()),
        _ => Err(Errno::ENOTEMPTY).on("remove", &source.path),
    }
}

fn existing(parent: &ParentDir) -> Result<FileStat, FilesError> {
    parent.entry()?.ok_or_else(|| FilesError::of(Errno::ENOENT, "stat", &parent.path))
}
