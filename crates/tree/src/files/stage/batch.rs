//! Entries that take their places in a workspace together, or not at all.
//!
//! Each is made under a temporary name beside its place. Then each is exchanged with what has its name, and what was
//! there is removed only when all have their places. Until then every step can be undone.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{RenameFlags, renameat2};
use nix::sys::stat::{FileStat, SFlag};

use super::access::StagedAccess;
use super::fill::{DirectorySource, fill, settle};
use super::link::{link_text_to, make_link};
use super::private_dir::{PrivateDir, remove_entry};
use crate::files::digest::DirectoryDigest;
use crate::files::error::{FilesError, OnPath};
use crate::files::layout::{METADATA_MODE, metadata_location};
use crate::files::location::FileLocation;
use crate::files::read::open_regular;
use crate::files::resolve::{MissingParents, ParentDir, ResolvedFile, WorkspaceRoot};
use crate::files::write::{TempFile, check_replaceable, permissions, remove_directories};
use crate::walk::budget::TreeLimits;

/// Entries that take their places together. Unless it is installed, everything that it made is removed.
#[derive(Debug)]
pub struct StageBatch<'root> {
    root: WorkspaceRoot<'root>,
    entries: Vec<StagedEntry>,
    /// Directories that were made on the way to the places.
    made: Vec<FileLocation>,
    /// Entries that stay open until they have their places.
    held: Vec<OwnedFd>,
}

/// An entry beside its place, or in it.
#[derive(Debug)]
struct StagedEntry {
    parent: ParentDir,
    /// Its temporary name; what was replaced has it once the entry is exchanged.
    temp: String,
    /// Whether a directory that has the name is replaced too.
    replaces_directory: bool,
    state: EntryState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryState {
    /// It has its temporary name.
    Aside,
    /// It has its place, which was free.
    Placed,
    /// It has its place, and what was there has the temporary name.
    Exchanged,
}

impl<'root> StageBatch<'root> {
    /// An empty batch for a workspace.
    pub fn new(root: &WorkspaceRoot<'root>) -> Self {
        Self { root: *root, entries: Vec::new(), made: Vec::new(), held: Vec::new() }
    }

    /// Adds a file with the contents of `source`. It takes the place of a file or a link.
    ///
    /// # Errors
    /// As [`put_file`](crate::files::put_file).
    pub fn file(
        &mut self,
        to: &FileLocation,
        source: &mut dyn Read,
        mode: u32,
    ) -> Result<(), FilesError> {
        let parent = self.parent(to)?;
        check_replaceable(&parent)?;
        let mut temp = TempFile::create_named(&parent)?;
        temp.fill(source)?;
        temp.settle(permissions(mode), self.root.owner)?;
        let temp = temp.keep();
        self.push(parent, temp, false);
        Ok(())
    }

    /// Adds `metadata.json`, which takes the place of whatever has the name.
    ///
    /// # Errors
    /// Those of writing.
    pub fn metadata(&mut self, contents: &[u8]) -> Result<(), FilesError> {
        let parent = self.parent(&metadata_location())?;
        let mut temp = TempFile::create_named(&parent)?;
        temp.fill(&mut &*contents)?;
        temp.settle(METADATA_MODE, self.root.owner)?;
        let temp = temp.keep();
        self.push(parent, temp, true);
        Ok(())
    }

    /// Adds a directory, which takes the place of whatever has the name.
    ///
    /// # Errors
    /// [`FilesError::ThroughLink`] for a link that leads out of the source, [`FilesError::ArchiveUnsafe`],
    /// [`FilesError::TooLarge`], and those of writing.
    pub fn directory(
        &mut self,
        to: &FileLocation,
        source: DirectorySource<'_>,
        access: StagedAccess,
        limits: &TreeLimits,
    ) -> Result<DirectoryDigest, FilesError> {
        let (parent, shown) = (self.parent(to)?, to.shown());
        let staged = PrivateDir::create(&parent)?;
        let digest = fill(staged.directory(), source, (self.root.owner, access), limits, &shown)?;
        let temp = staged.keep();
        self.push(parent, Some(temp), true);
        Ok(digest)
    }

    /// Adds an empty directory with the permissions and the time that a read-only copy of a directory with `stat` has.
    /// It takes the place of whatever has the name. Returns its path below the root of the workspace's file system,
    /// until the batch is installed.
    ///
    /// # Errors
    /// Those of writing.
    pub fn mount_point(
        &mut self,
        to: &FileLocation,
        stat: &FileStat,
    ) -> Result<PathBuf, FilesError> {
        let (parent, shown) = (self.parent(to)?, to.shown());
        let staged = PrivateDir::create(&parent)?;
        let rules = (self.root.owner, StagedAccess::ReadOnly);
        settle(staged.directory(), Some(stat), rules, &shown)?;
        // As long as it is open, the kernel does not look for it again.
        self.held.push(staged.directory().try_clone_to_owned().on("dup", &shown)?);
        let temp = staged.keep();
        let above = to.parent().map(|above| above.path_in_root()).unwrap_or_default();
        let path = above.join(&temp);
        self.push(parent, Some(temp), true);
        Ok(path)
    }

    /// Adds a copy of the file or directory at `from` of the workspace. Links on the way to `from` are followed as in
    /// the sandbox.
    ///
    /// # Errors
    /// As [`StageBatch::file`] and [`StageBatch::directory`], and [`FilesError::IntoItself`] for a directory that
    /// contains `to`, or lies in it.
    pub fn copy(
        &mut self,
        to: &FileLocation,
        from: &FileLocation,
        limits: &TreeLimits,
    ) -> Result<(), FilesError> {
        let found = self.root.find(from, true)?;
        match found.file_type() {
            SFlag::S_IFDIR => self.copy_directory(to, &found, limits),
            _ => {
                let ((mut file, stat), _) = open_regular(found)?;
                self.file(to, &mut file, stat.st_mode & 0o777)
            }
        }
    }

    fn copy_directory(
        &mut self,
        to: &FileLocation,
        found: &ResolvedFile,
        limits: &TreeLimits,
    ) -> Result<(), FilesError> {
        let from = &found.location;
        // A tree can neither contain its copy nor be replaced by it.
        if to.lies_in(from) || from.lies_in(to) {
            return Err(FilesError::IntoItself { path: to.shown() });
        }
        let source = DirectorySource::Directory(found.file.as_fd());
        self.directory(to, source, StagedAccess::Writable, limits).map(|_| ())
    }

    /// Adds a link that leads to `target`, and takes the place of whatever has the name. Its text is relative if both
    /// are in one area.
    ///
    /// # Errors
    /// Those of writing, [`FilesError::IntoItself`] if `target` is `to` or lies in it, and those of finding the file
    /// or directory that it is to lead to.
    pub fn link(&mut self, to: &FileLocation, target: &FileLocation) -> Result<(), FilesError> {
        if target.lies_in(to) {
            return Err(FilesError::IntoItself { path: to.shown() });
        }
        match self.root.find(target, true)?.file_type() {
            SFlag::S_IFREG | SFlag::S_IFDIR => {}
            _ => return Err(FilesError::not_regular(&target.shown())),
        }
        let parent = self.parent(to)?;
        let temp = make_link(&self.root, &parent, &link_text_to(&self.root, to, target))?;
        self.push(parent, Some(temp), true);
        Ok(())
    }

    /// Gives all entries their places, in the order in which they were added.
    ///
    /// # Errors
    /// The first one that cannot have its place. Then none has, and everything is as it was.
    pub fn install(mut self) -> Result<(), FilesError> {
        // An overlay exchanges no directory of a lower layer. What is there has to be removed first, which cannot be
        // undone, so this comes when nothing else can fail.
        let mut late = Vec::new();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if !entry.place()? {
                late.push(index);
            }
        }
        for index in late {
            if let Some(entry) = self.entries.get_mut(index) {
                entry.place_over()?;
            }
        }
        self.made.clear();
        for entry in std::mem::take(&mut self.entries) {
            if entry.state == EntryState::Exchanged {
                // What cannot be removed counts against the workspace's limit.
                let _ = remove_entry(&entry.parent, OsStr::new(&entry.temp));
            }
        }
        Ok(())
    }

    fn parent(&mut self, to: &FileLocation) -> Result<ParentDir, FilesError> {
        let parent = self.root.parent(to, MissingParents::Make(&mut self.made))?;
        parent.check_writable()?;
        Ok(parent)
    }

    fn push(&mut self, parent: ParentDir, temp: Option<String>, replaces_directory: bool) {
        let temp = temp.unwrap_or_default();
        let state = EntryState::Aside;
        self.entries.push(StagedEntry { parent, temp, replaces_directory, state });
    }
}

impl Drop for StageBatch<'_> {
    fn drop(&mut self) {
        for entry in self.entries.iter().rev() {
            entry.undo();
        }
        remove_directories(&self.root, &self.made);
    }
}

impl StagedEntry {
    /// Gives the entry its place. Returns false if what is there must be removed first.
    fn place(&mut self) -> Result<bool, FilesError> {
        self.parent.check_writable()?;
        if !self.replaces_directory {
            check_replaceable(&self.parent)?;
        }
        match self.rename(RenameFlags::RENAME_NOREPLACE) {
            Ok(()) => self.state = EntryState::Placed,
            Err(Errno::EEXIST) => match self.rename(RenameFlags::RENAME_EXCHANGE) {
                Ok(()) => self.state = EntryState::Exchanged,
                Err(Errno::EXDEV | Errno::EINVAL) => return Ok(false),
                Err(errno) => return Err(errno).on("exchange", &self.parent.path),
            },
            Err(errno) => return Err(errno).on("rename", &self.parent.path),
        }
        Ok(true)
    }

    /// Removes what is there, and gives the entry its place.
    fn place_over(&mut self) -> Result<(), FilesError> {
        remove_entry(&self.parent, &self.parent.name)?;
        self.rename(RenameFlags::RENAME_NOREPLACE).on("rename", &self.parent.path)?;
        self.state = EntryState::Placed;
        Ok(())
    }

    /// Puts back what was there, and removes the entry.
    fn undo(&self) {
        let (directory, name) = (&self.parent.directory, self.parent.name.as_os_str());
        let temp = self.temp.as_str();
        let moved = match self.state {
            EntryState::Aside => Ok(()),
            EntryState::Placed => {
                renameat2(directory, name, directory, temp, RenameFlags::RENAME_NOREPLACE)
            }
            EntryState::Exchanged => self.rename(RenameFlags::RENAME_EXCHANGE),
        };
        if moved.is_ok() {
            let _ = remove_entry(&self.parent, OsStr::new(temp));
        }
    }

    fn rename(&self, flags: RenameFlags) -> Result<(), Errno> {
        let (directory, name) = (&self.parent.directory, self.parent.name.as_os_str());
        renameat2(directory, self.temp.as_str(), directory, name, flags)
    }
}
