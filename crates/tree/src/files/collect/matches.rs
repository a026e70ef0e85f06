//! Finds the files that match patterns.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::SFlag;

use super::patterns::CollectPattern;
use crate::files::error::{FilesError, OnPath};
use crate::files::location::{FileArea, FileLocation, PATH_BYTES_MAX};
use crate::files::resolve::{ResolvedFile, WorkspaceRoot};
use crate::walk::path_stack::PathStack;
use crate::walk::{FileKind, TreeWalk, WalkEvent};

/// The most files that are listed as omitted.
const OMITTED_MAX: usize = 1000;

/// Why a file that matches is not collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectOmission {
    /// A link that leads out of the workspace.
    LinkLeaves,
    /// A link that leads nowhere.
    LinkDangles,
    /// A fifo, a socket or a device.
    NotRegular,
    /// A path that is too long.
    TooDeep,
    /// It could not be read.
    Unreadable,
}

impl CollectOmission {
    /// The reason for clients.
    pub fn reason(self) -> &'static str {
        match self {
            Self::LinkLeaves => "the link leads out of the workspace",
            Self::LinkDangles => "the link leads nowhere",
            Self::NotRegular => "not a regular file",
            Self::TooDeep => "the path is too long",
            Self::Unreadable => "the file cannot be read",
        }
    }
}

/// The first files that match, by pattern and real path.
#[derive(Debug)]
pub(super) struct CollectMatches {
    ordered: BTreeSet<(usize, PathBuf)>,
    patterns: BTreeMap<PathBuf, usize>,
    files_max: usize,
    pub(super) omitted: BTreeMap<PathBuf, CollectOmission>,
    pub(super) limits_hit: bool,
}

impl CollectMatches {
    pub(super) fn new(files_max: usize) -> Self {
        Self {
            ordered: BTreeSet::new(),
            patterns: BTreeMap::new(),
            files_max,
            omitted: BTreeMap::new(),
            limits_hit: false,
        }
    }

    /// The paths, in order.
    pub(super) fn take_paths(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.ordered).into_iter().map(|(_, path)| path).collect()
    }

    pub(super) fn omit(&mut self, path: PathBuf, reason: CollectOmission) {
        if self.omitted.len() < OMITTED_MAX || self.omitted.contains_key(&path) {
            self.omitted.insert(path, reason);
        } else {
            self.limits_hit = true;
        }
    }

    /// Adds a regular file. It counts once, for the first pattern.
    fn add(&mut self, pattern: usize, path: &Path) {
        if let Some(before) = self.patterns.get(path).copied() {
            if before <= pattern {
                return;
            }
            self.ordered.remove(&(before, path.to_owned()));
        }
        self.patterns.insert(path.to_owned(), pattern);
        self.ordered.insert((pattern, path.to_owned()));
        if self.ordered.len() > self.files_max {
            self.limits_hit = true;
            if let Some((_, last)) = self.ordered.pop_last() {
                self.patterns.remove(&last);
            }
        }
    }

    /// Adds what `pattern` matches. `entries_left` bounds the entries that are visited.
    pub(super) fn search(
        &mut self,
        root: &WorkspaceRoot<'_>,
        (index, pattern): (usize, &CollectPattern),
        entries_left: &mut u64,
    ) -> Result<(), FilesError> {
        let (directory, base) = match self.base(root, pattern)?.map(ResolvedFile::into_directory) {
            Some(Ok(found)) => found,
            // Nothing is below a file.
            Some(Err(_)) | None => return Ok(()),
        };
        if let Some(name) = &pattern.only {
            self.resolve(root, index, &base.join(Path::new(name)));
            return Ok(());
        }
        let mut walk =
            TreeWalk::to_choose(directory.as_fd(), *entries_left).on("list", &base.shown())?;
        let mut path = PathStack::default();
        while let Some(event) = walk.advance()? {
            if !matches!(event, WalkEvent::Leave { .. }) {
                let Some(left) = entries_left.checked_sub(1) else {
                    self.limits_hit = true;
                    return Ok(());
                };
                *entries_left = left;
            }
            self.event(root, (index, pattern), (&base, &mut walk, &mut path), &event);
        }
        Ok(())
    }

    /// The directory where the search begins.
    fn base(
        &mut self,
        root: &WorkspaceRoot<'_>,
        pattern: &CollectPattern,
    ) -> Result<Option<ResolvedFile>, FilesError> {
        match root.find(&pattern.base, true) {
            Ok(found) if found.location.area() == FileArea::Workspace => return Ok(Some(found)),
            Ok(_) | Err(FilesError::ThroughLink { .. }) => {
                self.omit(pattern.base.shown(), CollectOmission::LinkLeaves);
            }
            Err(FilesError::NotFound { .. } | FilesError::PathTooLong { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    fn event(
        &mut self,
        root: &WorkspaceRoot<'_>,
        (index, pattern): (usize, &CollectPattern),
        (base, walk, path): (&FileLocation, &mut TreeWalk<'_>, &mut PathStack),
        event: &WalkEvent,
    ) {
        let location = |path: &PathStack| base.join(path.path());
        match event {
            WalkEvent::Leave { .. } => path.leave(),
            WalkEvent::Enter { name, .. } => {
                path.enter(name);
                if !pattern.prefixes.is_below(path.bytes()) {
                    walk.pass_over();
                } else if path.bytes().len() > PATH_BYTES_MAX {
                    walk.pass_over();
                    self.omit(base.join(&path.shown()).shown(), CollectOmission::TooDeep);
                }
            }
            WalkEvent::Entry { name, kind } => within(path, name, |path| {
                if !pattern.glob.matches(path.path()) {
                    return;
                }
                match kind {
                    FileKind::Regular => self.add(index, location(path).relative()),
                    FileKind::Symlink => self.resolve(root, index, &location(path)),
                    FileKind::Special => {
                        self.omit(location(path).shown(), CollectOmission::NotRegular);
                    }
                }
            }),
            WalkEvent::Unopened { errno: Errno::ENOENT, .. } => {}
            WalkEvent::Unopened { name, .. } => within(path, name, |path| {
                if pattern.prefixes.is_below(path.bytes()) || pattern.glob.matches(path.path()) {
                    self.omit(location(path).shown(), CollectOmission::Unreadable);
                }
            }),
        }
    }

    /// Adds the file that `location` names or links to.
    fn resolve(&mut self, root: &WorkspaceRoot<'_>, pattern: usize, location: &FileLocation) {
        let is_link = || {
            let entry = root.find(location, false);
            entry.is_ok_and(|entry| entry.file_type() == SFlag::S_IFLNK)
        };
        let reason = match root.find(location, true) {
            Ok(found) => match found.file_type() {
                SFlag::S_IFDIR => return,
                _ if found.location.area() != FileArea::Workspace => CollectOmission::LinkLeaves,
                SFlag::S_IFREG => return self.add(pattern, found.location.relative()),
                _ => CollectOmission::NotRegular,
            },
            Err(FilesError::NotFound { .. }) if is_link() => CollectOmission::LinkDangles,
            Err(FilesError::NotFound { .. }) => return,
            Err(FilesError::ThroughLink { .. }) => CollectOmission::LinkLeaves,
            Err(_) => CollectOmission::Unreadable,
        };
        self.omit(location.shown(), reason);
    }
}

/// Calls `take` with the path of the entry `name`.
fn within(path: &mut PathStack, name: &CStr, take: impl FnOnce(&PathStack)) {
    path.enter(name);
    take(path);
    path.leave();
}

/// The location of a path that was collected.
pub(super) fn collected(path: &Path) -> FileLocation {
    FileLocation::top(FileArea::Workspace).join(path)
}
