//! Writes files into a workspace: each is written beside its place and then renamed, so that a reader
//! sees the old file or the new one, and a full disk leaves the old one.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{RenameFlags, renameat, renameat2};
use nix::sys::stat::{Mode, SFlag, fchmod, futimens};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::error::{FilesError, OnPath};
use super::location::FileLocation;
use super::resolve::{MissingParents, ParentDir, WorkspaceRoot};
use crate::status;
use crate::walk::open_beneath;
use cofferdam_core::values::owner::Owner;

/// The mode of a file that names none.
const FILE_MODE_DEFAULT: u32 = 0o644;
/// The permission bits. Set-id bits and the sticky bit are never set.
const PERMISSIONS: u32 = 0o777;
/// Bytes read and written at a time.
const BUFFER_BYTES: usize = 64 * 1024;
/// The start of temporary names.
const TEMP_PREFIX: &str = ".cofferdam-";
/// The most tries for a temporary name.
const TEMP_TRIES_MAX: u32 = 16;

/// One file of [`put_files`].
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    /// The place.
    pub location: &'a FileLocation,
    /// The contents.
    pub content: &'a [u8],
    /// The permissions; 0 is 0644.
    pub mode: u32,
}

/// Writes the contents of `source` to `location`, and makes missing directories. A file or a link of that name is
/// replaced; a link is not followed. Returns whether the file is new.
///
/// # Errors
/// [`FilesError::ThroughLink`] for a link on the way, [`FilesError::NotRegular`] if a directory or a special file
/// has the name, [`FilesError::ReadOnly`], [`FilesError::DiskFull`], or [`FilesError::Input`] if `source` fails. An
/// existing file is unchanged then.
pub fn put_file(
    root: &WorkspaceRoot<'_>,
    location: &FileLocation,
    source: &mut dyn Read,
    mode: u32,
) -> Result<bool, FilesError> {
    let mut made = Vec::new();
    file_parent(root, location, MissingParents::Make(&mut made))
        .and_then(|parent| put_in(&parent, source, mode, root.owner))
        .inspect_err(|_| remove_directories(root, &made))
}

/// As [`put_file`], into an open directory.
pub(super) fn put_in(
    parent: &ParentDir,
    source: &mut dyn Read,
    mode: u32,
    owner: Owner,
) -> Result<bool, FilesError> {
    let mut temp = TempFile::create(parent)?;
    temp.fill(source)?;
    temp.settle(permissions(mode), owner)?;
    temp.install()
}

/// Writes all of `files`, or none: every path is judged before the first write, and nothing is replaced before
/// everything is written.
///
/// # Errors
/// As [`put_file`], for the first file that fails.
pub fn put_files(root: &WorkspaceRoot<'_>, files: &[NewFile<'_>]) -> Result<(), FilesError> {
    judge(root, files)?;
    let mut made = Vec::new();
    let mut temps = Vec::with_capacity(files.len());
    put_all(root, files, &mut made, &mut temps).inspect_err(|_| {
        for (file, name) in files.iter().zip(&temps) {
            if let Ok(parent) = root.parent(file.location, MissingParents::Refuse) {
                // Those that were renamed are gone.
                let _ = unlinkat(&parent.directory, name.as_str(), UnlinkatFlags::NoRemoveDir);
            }
        }
        remove_directories(root, &made);
    })
}

/// Writes `files` under the names `temps`, then renames them. Both lists have what was made when this fails.
fn put_all(
    root: &WorkspaceRoot<'_>,
    files: &[NewFile<'_>],
    made: &mut Vec<FileLocation>,
    temps: &mut Vec<String>,
) -> Result<(), FilesError> {
    for file in files {
        let parent = file_parent(root, file.location, MissingParents::Make(made))?;
        let mut temp = TempFile::create_named(&parent)?;
        temp.fill(&mut &*file.content)?;
        temp.settle(permissions(file.mode), root.owner)?;
        temps.extend(temp.keep());
    }
    for (file, name) in files.iter().zip(temps) {
        let parent = root.parent(file.location, MissingParents::Refuse)?;
        install(&parent, name)?;
    }
    Ok(())
}

/// Checks all places before anything is written.
fn judge(root: &WorkspaceRoot<'_>, files: &[NewFile<'_>]) -> Result<(), FilesError> {
    let places: BTreeSet<&FileLocation> = files.iter().map(|file| file.location).collect();
    for location in &places {
        let mut above = location.parent();
        while let Some(directory) = above {
            if places.contains(&directory) {
                return Err(FilesError::not_regular(&directory.shown()));
            }
            above = directory.parent();
        }
        match file_parent(root, location, MissingParents::Refuse) {
            Ok(parent) => parent.check_writable()?,
            Err(FilesError::NotFound { .. }) => root.check_missing(location)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The directory of a file to write, whose name must be free, or that of a file or a link.
fn file_parent(
    root: &WorkspaceRoot<'_>,
    location: &FileLocation,
    missing: MissingParents<'_>,
) -> Result<ParentDir, FilesError> {
    if location.name().is_none() {
        return Err(FilesError::not_regular(&location.shown()));
    }
    let parent = root.parent(location, missing)?;
    check_replaceable(&parent)?;
    Ok(parent)
}

pub(super) fn check_replaceable(parent: &ParentDir) -> Result<(), FilesError> {
    match parent.entry()?.as_ref().map(status::file_type) {
        None | Some(SFlag::S_IFREG | SFlag::S_IFLNK) => Ok(()),
        Some(_) => Err(FilesError::not_regular(&parent.path)),
    }
}

/// Removes directories that were made for something that failed, unless they are in use.
pub(super) fn remove_directories(root: &WorkspaceRoot<'_>, made: &[FileLocation]) {
    for location in made.iter().rev() {
        if let Ok(parent) = root.parent(location, MissingParents::Refuse) {
            let _ = unlinkat(&parent.directory, parent.name.as_os_str(), UnlinkatFlags::RemoveDir);
        }
    }
}

/// The permissions of a file with the requested `mode`.
pub(super) fn permissions(mode: u32) -> Mode {
    let mode = if mode == 0 { FILE_MODE_DEFAULT } else { mode };
    Mode::from_bits_truncate(mode & PERMISSIONS)
}

/// A name that is not in use: a counter, the process and the time.
pub(super) fn temp_name() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{TEMP_PREFIX}{:x}-{:x}-{count:x}", process::id(), time.as_nanos())
}

/// Calls `make` with new temporary names until one is free.
pub(super) fn with_temp_name<T>(
    mut make: impl FnMut(&str) -> Result<T, Errno>,
) -> Result<(T, String), Errno> {
    for _ in 0..TEMP_TRIES_MAX {
        let name = temp_name();
        match make(&name) {
            Err(Errno::EEXIST) => {}
            made => return made.map(|made| (made, name)),
        }
    }
    Err(Errno::EEXIST)
}

/// A file that is written before it has its place: without a name where the file system can do that, so that
/// programs and snapshots never see a part, or under a temporary one beside the place, which is removed unless it is
/// used. Until it is settled, it belongs to the service, and no program can open it.
pub(super) struct TempFile<'dir> {
    parent: &'dir ParentDir,
    file: File,
    /// The temporary name, if it has one.
    name: Option<String>,
}

impl<'dir> TempFile<'dir> {
    pub(super) fn create(parent: &'dir ParentDir) -> Result<Self, FilesError> {
        parent.check_writable()?;
        match open_beneath::create_unnamed(&parent.directory) {
            Ok(file) => Ok(Self { parent, file: File::from(file), name: None }),
            Err(Errno::EOPNOTSUPP | Errno::EINVAL | Errno::EISDIR) => Self::create_named(parent),
            Err(errno) => Err(errno).on("create", &parent.path),
        }
    }

    /// As [`TempFile::create`], always with a temporary name: it needs no descriptor while it waits.
    pub(super) fn create_named(parent: &'dir ParentDir) -> Result<Self, FilesError> {
        parent.check_writable()?;
        let create = |name: &str| open_beneath::create_file(&parent.directory, name);
        let (file, name) = with_temp_name(create).on("create", &parent.path)?;
        Ok(Self { parent, file: File::from(file), name: Some(name) })
    }

    pub(super) fn fill(&mut self, source: &mut dyn Read) -> Result<(), FilesError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = match source.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(FilesError::Input(error)),
            };
            self.file
                .write_all(buffer.get(..count).unwrap_or_default())
                .on("write", &self.parent.path)?;
        }
    }

    /// Sets the time of the last change, in seconds since the epoch.
    pub(super) fn set_modified(&self, seconds: u64) -> Result<(), FilesError> {
        // Later times than a file system can store are cut to the last one.
        let time = TimeSpec::new(i64::try_from(seconds).unwrap_or(i64::MAX), 0);
        futimens(&self.file, &time, &time).on("utimens", &self.parent.path)
    }

    /// Sets the mode, then the owner: the other order needs a capability.
    pub(super) fn settle(&self, mode: Mode, owner: Owner) -> Result<(), FilesError> {
        fchmod(&self.file, mode).on("chmod", &self.parent.path)?;
        owner.take(self.file.as_fd()).on("chown", &self.parent.path)
    }

    /// Puts the file in its place. Returns whether the place was free.
    pub(super) fn install(self) -> Result<bool, FilesError> {
        let parent = self.parent;
        if self.name.is_none() {
            parent.check_writable()?;
            match open_beneath::link_unnamed(&self.file, &parent.directory, parent.name.as_os_str())
            {
                Ok(()) => return Ok(true),
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno).on("link", &parent.path),
            }
        }
        self.place(|name| install(parent, name))
    }

    /// Puts the file in its place by `rename` of a temporary name.
    pub(super) fn place<T>(
        mut self,
        rename: impl FnOnce(&str) -> Result<T, FilesError>,
    ) -> Result<T, FilesError> {
        let name = match self.name.take() {
            Some(name) => name,
            None => {
                let directory = &self.parent.directory;
                let link = |name: &str| open_beneath::link_unnamed(&self.file, directory, name);
                with_temp_name(link).on("link", &self.parent.path)?.1
            }
        };
        let placed = rename(&name);
        if placed.is_err() {
            self.name = Some(name);
        }
        placed
    }

    /// Leaves the file under its temporary name, which is returned.
    pub(super) fn keep(mut self) -> Option<String> {
        self.name.take()
    }
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let no_directory = UnlinkatFlags::NoRemoveDir;
            let _ = unlinkat(&self.parent.directory, name.as_str(), no_directory);
        }
    }
}

/// Renames the temporary file `temp` to its place. Returns whether the place was free.
fn install(parent: &ParentDir, temp: &str) -> Result<bool, FilesError> {
    parent.check_writable()?;
    let (directory, name) = (&parent.directory, parent.name.as_os_str());
    match renameat2(directory, temp, directory, name, RenameFlags::RENAME_NOREPLACE) {
        Ok(()) => return Ok(true),
        // EINVAL: the file system cannot do it.
        Err(Errno::EEXIST | Errno::EINVAL) => {}
        Err(errno) => return Err(errno).on("rename", &parent.path),
    }
    let is_new = parent.entry()?.is_none();
    check_replaceable(parent)?;
    renameat(directory, temp, directory, name).on("rename", &parent.path)?;
    Ok(is_new)
}
