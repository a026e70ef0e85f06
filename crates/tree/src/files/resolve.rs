//! Resolves locations below the descriptor of a workspace's file system.
//!
//! Every open is beneath that descriptor and follows no link. Reading follows links by resolving
//! their texts here, as the sandbox would, so that a link has no meaning outside of the workspace.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::readlinkat;
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, mkdirat};
use nix::unistd::Uid;

use super::error::{FilesError, OnPath};
use super::location::{FileLocation, PathRule, parts};
use crate::error::{During, WorkspaceFault};
use crate::status;
use crate::walk::open_beneath;
use cofferdam_core::values::owner::Owner;

/// The most links on one path, as in the kernel.
const LINKS_MAX: u32 = 40;
/// The most names on one path, those of links included.
const STEPS_MAX: u32 = 4096;
/// The mode of a directory that is made and not yet given to its owner. No program can make or change a
/// directory of the service, so one with this mode was made by [`WorkspaceRoot::make_directory`].
const MADE_MODE: Mode = Mode::S_IRWXU.union(Mode::S_ISVTX);
/// The mode of a new directory: 0755.
pub(super) const DIRECTORY_MODE: Mode = Mode::S_IRWXU
    .union(Mode::S_IRGRP)
    .union(Mode::S_IXGRP)
    .union(Mode::S_IROTH)
    .union(Mode::S_IXOTH);

/// A workspace's file system: the descriptor of its root, which holds the directories `workspace` and `tmp`, the
/// rule for its paths, and the owner of what is created.
#[derive(Debug, Clone, Copy)]
pub struct WorkspaceRoot<'fd> {
    /// The root.
    pub directory: BorrowedFd<'fd>,
    /// Maps paths to locations.
    pub rule: &'fd PathRule,
    /// The owner of new files and directories.
    pub owner: Owner,
}

/// A file that was found, opened without access to its contents.
#[derive(Debug)]
pub(super) struct ResolvedFile {
    pub(super) file: OwnedFd,
    pub(super) stat: FileStat,
    /// Its path without links.
    pub(super) location: FileLocation,
}

impl ResolvedFile {
    pub(super) fn file_type(&self) -> SFlag {
        status::file_type(&self.stat)
    }

    /// The descriptor, if it is a directory.
    pub(super) fn into_directory(self) -> Result<(OwnedFd, FileLocation), FilesError> {
        match self.file_type() {
            SFlag::S_IFDIR => Ok((self.file, self.location)),
            _ => Err(FilesError::not_regular(&self.location.shown())),
        }
    }
}

/// The directory in which something is changed.
#[derive(Debug)]
pub(super) struct ParentDir {
    pub(super) directory: OwnedFd,
    /// The name of the entry in it.
    pub(super) name: OsString,
    /// The path of the entry, for errors.
    pub(super) path: PathBuf,
    owner: Owner,
}

impl ParentDir {
    /// Fails if the directory belongs to a read-only tree. This stays true: no program can change it.
    pub(super) fn check_writable(&self) -> Result<(), FilesError> {
        check_writable(self.directory.as_fd(), self.owner, &self.path)
    }

    /// The status of the entry itself; `None` if it is absent.
    pub(super) fn entry(&self) -> Result<Option<FileStat>, FilesError> {
        match open_beneath::open_path(&self.directory, self.name.as_os_str()) {
            Ok(entry) => fstat(entry).map(Some).on("stat", &self.path),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno).on("open", &self.path),
        }
    }
}

/// What happens to directories that are missing on the way to a file.
pub(super) enum MissingParents<'made> {
    /// The path is not found.
    Refuse,
    /// They are made, and listed here.
    Make(&'made mut Vec<FileLocation>),
    /// The last directory that exists stands for them.
    Stop,
}

impl WorkspaceRoot<'_> {
    /// The location that a client's path names.
    ///
    /// # Errors
    /// As [`PathRule::locate`].
    pub fn locate(&self, path: impl AsRef<[u8]>) -> Result<FileLocation, FilesError> {
        self.rule.locate(path.as_ref())
    }

    /// Finds the file at `location`. Links are followed if they stay inside, a last one only with `follow_last`.
    pub(super) fn find(
        &self,
        location: &FileLocation,
        follow_last: bool,
    ) -> Result<ResolvedFile, FilesError> {
        match open_beneath::open_path(self.directory, &location.path_in_root()) {
            Ok(file) => {
                let stat = fstat(&file).on("stat", &location.shown())?;
                if status::file_type(&stat) != SFlag::S_IFLNK || !follow_last {
                    return Ok(ResolvedFile { file, stat, location: location.clone() });
                }
            }
            Err(Errno::ELOOP) => {}
            // Nothing is found below a file.
            Err(Errno::ENOTDIR) => {
                return Err(FilesError::of(Errno::ENOENT, "open", &location.shown()));
            }
            Err(errno) => return Err(errno).on("open", &location.shown()),
        }
        LinkWalk::new(self, location).finish(follow_last)
    }

    /// Opens the directory of `location` for a change in it. No link is followed.
    pub(super) fn parent(
        &self,
        location: &FileLocation,
        missing: MissingParents<'_>,
    ) -> Result<ParentDir, FilesError> {
        let path = location.shown();
        let (Some(above), Some(name)) = (location.parent(), location.name()) else {
            return Err(FilesError::PathEscape { path });
        };
        let directory = match open_beneath::open_path(self.directory, &above.path_in_root()) {
            Ok(opened) if is_directory(&opened) => opened,
            _ => self.walk_to(&above, missing)?,
        };
        Ok(ParentDir { directory, name: name.to_owned(), path, owner: self.owner })
    }

    /// Fails if a read-only tree, a link or a file is where `location` and the directories above it would be made.
    /// Takes one step for each directory that exists, not for each that is missing.
    pub(super) fn check_missing(&self, location: &FileLocation) -> Result<(), FilesError> {
        let Some(above) = location.parent() else { return Ok(()) };
        let nearest = self.walk_to(&above, MissingParents::Stop)?;
        check_writable(nearest.as_fd(), self.owner, &location.shown())
    }

    /// Opens the directory `location` part by part, to make missing parts or to name the one that is in the way.
    fn walk_to(
        &self,
        location: &FileLocation,
        mut missing: MissingParents<'_>,
    ) -> Result<OwnedFd, FilesError> {
        let mut reached = FileLocation::top(location.area());
        let top = location.area().name();
        let mut here = open_beneath::open_path(self.directory, top).on("open", &reached.shown())?;
        for part in location.parts() {
            reached = reached.join(Path::new(part));
            let path = reached.shown();
            let opened = match (open_beneath::open_path(&here, part), &mut missing) {
                (Err(Errno::ENOENT), MissingParents::Make(made)) => {
                    check_writable(here.as_fd(), self.owner, &path)?;
                    let (opened, is_new) = self
                        .make_directory(here.as_fd(), part, DIRECTORY_MODE)
                        .on("mkdir", &path)?;
                    if is_new {
                        made.push(reached.clone());
                    }
                    opened
                }
                (Err(Errno::ENOENT), MissingParents::Stop) => return Ok(here),
                (opened, _) => opened.on("open", &path)?,
            };
            let stat = fstat(&opened).on("stat", &path)?;
            match status::file_type(&stat) {
                SFlag::S_IFDIR => here = opened,
                SFlag::S_IFLNK => return Err(FilesError::of(Errno::ELOOP, "open", &path)),
                _ => return Err(FilesError::not_regular(&path)),
            }
        }
        Ok(here)
    }

    /// Makes the directory `name` in `parent` for the owner, or opens an existing one. Also returns whether it is new.
    pub(super) fn make_directory(
        &self,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        mode: Mode,
    ) -> Result<(OwnedFd, bool), WorkspaceFault> {
        match mkdirat(parent, name, MADE_MODE) {
            Ok(()) => {}
            Err(Errno::EEXIST) => {
                let opened = open_beneath::open_path(parent, name).during("open")?;
                return Ok((opened, false));
            }
            Err(errno) => return Err(errno).during("mkdir"),
        }
        let made = open_beneath::open_directory(parent, name).during("open")?;
        let stat = fstat(&made).during("stat")?;
        let is_new =
            stat.st_uid == Uid::effective().as_raw() && stat.st_mode & 0o7777 == MADE_MODE.bits();
        // Otherwise a program has replaced it meanwhile, by something that must keep its owner.
        if is_new {
            fchmod(&made, mode).during("chmod")?;
            self.owner.take(&made).during("chown")?;
        }
        Ok((made, is_new))
    }
}

fn is_directory(opened: &OwnedFd) -> bool {
    fstat(opened).is_ok_and(|stat| status::file_type(&stat) == SFlag::S_IFDIR)
}

fn check_writable(directory: BorrowedFd<'_>, owner: Owner, path: &Path) -> Result<(), FilesError> {
    let stat = fstat(directory).on("stat", path)?;
    if status::is_read_only(&stat, owner) {
        return Err(FilesError::of(Errno::EROFS, "open", path));
    }
    Ok(())
}

/// The text of the link that `link` is.
pub(super) fn link_text(link: BorrowedFd<'_>) -> Result<OsString, Errno> {
    readlinkat(link, c"")
}

/// The resolution of a path through links.
struct LinkWalk<'call> {
    root: &'call WorkspaceRoot<'call>,
    asked: &'call FileLocation,
    /// The absolute path inside the sandbox so far, without links.
    reached: Vec<Vec<u8>>,
    /// The directory `reached`, if it is open.
    here: Option<OwnedFd>,
    /// The names to resolve, the next one last.
    pending: Vec<Vec<u8>>,
    links: u32,
    steps: u32,
}

impl<'call> LinkWalk<'call> {
    fn new(root: &'call WorkspaceRoot<'call>, asked: &'call FileLocation) -> Self {
        let mut pending: Vec<Vec<u8>> =
            asked.parts().map(|part| part.as_bytes().to_vec()).collect();
        pending.reverse();
        let reached = root.rule.parts_inside(&FileLocation::top(asked.area()));
        Self { root, asked, reached, here: None, pending, links: 0, steps: 0 }
    }

    fn finish(mut self, follow_last: bool) -> Result<ResolvedFile, FilesError> {
        while let Some(part) = self.pending.pop() {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Err(self.leaves());
            }
            if part == b"." {
                continue;
            }
            if part == b".." {
                self.reached.pop();
                self.here = None;
                continue;
            }
            self.reached.push(part);
            let Some(location) = self.root.rule.area_of(&self.reached) else {
                self.here = None;
                if self.root.rule.is_above(&self.reached) {
                    continue;
                }
                return Err(self.leaves());
            };
            if location.relative().as_os_str().is_empty() {
                self.here = None;
                continue;
            }
            let found = self.open(location)?;
            match found.file_type() {
                SFlag::S_IFLNK if follow_last || !self.pending.is_empty() => self.follow(&found)?,
                _ if self.pending.is_empty() => return Ok(found),
                SFlag::S_IFDIR => self.here = Some(found.file),
                _ => return Err(FilesError::of(Errno::ENOENT, "open", &self.asked.shown())),
            }
        }
        // It ended with `..`, with a link to `.`, or at the top of an area. `here` is that directory itself, if open.
        self.here = None;
        match self.root.rule.area_of(&self.reached) {
            Some(location) => self.open(location),
            None => Err(self.leaves()),
        }
    }

    /// Opens `reached`, which is `location`.
    fn open(&self, location: FileLocation) -> Result<ResolvedFile, FilesError> {
        let opened = match (&self.here, self.reached.last()) {
            (Some(here), Some(name)) => open_beneath::open_path(here, name.as_slice()),
            _ => open_beneath::open_path(self.root.directory, &location.path_in_root()),
        };
        let file = opened.on("open", &self.asked.shown())?;
        let stat = fstat(&file).on("stat", &self.asked.shown())?;
        Ok(ResolvedFile { file, stat, location })
    }

    /// Replaces the link that was reached by its text.
    fn follow(&mut self, link: &ResolvedFile) -> Result<(), FilesError> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(self.leaves());
        }
        let text = link_text(link.file.as_fd()).on("readlink", &self.asked.shown())?.into_vec();
        self.reached.pop();
        if text.first() == Some(&b'/') {
            self.reached.clear();
            self.here = None;
        }
        // With a slash or a dot at its end, the text names a directory: what comes before must be one.
        if text.ends_with(b"/") || text.ends_with(b"/.") {
            self.pending.push(b".".to_vec());
        }
        self.pending.extend(parts(&text).rev().map(<[u8]>::to_vec));
        Ok(())
    }

    fn leaves(&self) -> FilesError {
        FilesError::of(Errno::ELOOP, "open", &self.asked.shown())
    }
}
