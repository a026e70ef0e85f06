//! What a command changed in one directory.
//!
//! Where the overlay shows the directory below, only what was written is looked at. A directory that hides what
//! lies below, or that was renamed, is compared entry by entry.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::states::{NodeKind, NodeState, state_of};
use crate::evaluation::patch::entry::{
    are_equal, join, link_text, names_in, open_directory, open_file,
};
use cofferdam_core::SetupFailure;
use cofferdam_sandbox::engine::OverlaidDirectory;
use cofferdam_tree::StopCheck;

/// Entries that are looked at.
const ENTRIES_MAX: usize = 1_000_000;

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeLetter {
    Added,
    Modified,
    Deleted,
    Retyped,
}

impl ChangeLetter {
    /// As it is printed.
    pub fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Modified => 'M',
            Self::Deleted => 'D',
            Self::Retyped => 'T',
        }
    }
}

/// One path that differs: in its kind, its contents, its mode, or where a link leads.
#[derive(Debug, Clone, Copy)]
pub struct PathDifference {
    pub before: Option<NodeState>,
    pub after: Option<NodeState>,
    /// Only the mode differs.
    pub has_same_contents: bool,
}

impl PathDifference {
    pub fn letter(&self) -> ChangeLetter {
        match (self.before, self.after) {
            (None, _) => ChangeLetter::Added,
            (_, None) => ChangeLetter::Deleted,
            (Some(before), Some(after)) if before.kind != after.kind => ChangeLetter::Retyped,
            _ => ChangeLetter::Modified,
        }
    }
}

/// All that a command changed in one directory.
#[derive(Debug, Default)]
pub struct DirectoryChanges {
    /// What is printed, by path.
    pub paths: BTreeMap<Vec<u8>, PathDifference>,
    /// What the command removed and someone else removed from the directory too.
    pub removed_twice: Vec<Vec<u8>>,
    /// Directories with another mode and files with other times, and their states now.
    pub attributes: BTreeMap<Vec<u8>, NodeState>,
    /// Paths of files with several names and the same contents, by the identities that the overlay shows.
    pub same_names: HashMap<(u64, u64), Vec<u8>>,
}

/// Finds what was changed in `directory`, in which nothing runs.
///
/// # Errors
/// It cannot be read, too much was changed, or `stop` ended it.
pub fn find_changes(
    directory: &OverlaidDirectory,
    stop: StopCheck<'_>,
) -> Result<DirectoryChanges, SetupFailure> {
    let is_whole = directory.has_hidden_names().map_err(failed)?;
    let mut finder = Finder { directory, stop, looked_at: 0, found: DirectoryChanges::default() };
    let mut pending = vec![(Vec::new(), is_whole)];
    while let Some((path, is_whole)) = pending.pop() {
        finder.directory(&path, is_whole, &mut pending).map_err(failed)?;
        if finder.looked_at > ENTRIES_MAX {
            let words = format!("the command changed more than {ENTRIES_MAX} entries");
            return Err(SetupFailure::from_words("find changes", words));
        }
    }
    Ok(finder.found)
}

fn failed(errno: Errno) -> SetupFailure {
    SetupFailure::from_errno("find changes", errno as i32)
}

struct Finder<'a> {
    directory: &'a OverlaidDirectory,
    stop: StopCheck<'a>,
    looked_at: usize,
    found: DirectoryChanges,
}

/// Directories to compare, each with whether to compare all its entries.
type Pending = Vec<(Vec<u8>, bool)>;

impl Finder<'_> {
    fn directory(
        &mut self,
        path: &[u8],
        is_whole: bool,
        pending: &mut Pending,
    ) -> Result<(), Errno> {
        let merged = open_directory(self.directory.merged(), path)?;
        let base = existing(open_directory(self.directory.base(), path))?;
        let written = existing(open_directory(self.directory.written(), path))?;
        let is_whole = is_whole || base.is_none() || self.is_detached(written.as_ref())?;
        let mut names = BTreeSet::new();
        if is_whole {
            names.extend(names_in(merged.as_fd(), self.stop)?);
        }
        for tree in base.iter().filter(|_| is_whole).chain(&written) {
            names.extend(names_in(tree.as_fd(), self.stop)?);
        }
        for name in names {
            self.looked_at += 1;
            let here = join(path, &name);
            let after = state_of(merged.as_fd(), &name)?;
            let before = base.as_ref().map(|base| state_of(base.as_fd(), &name)).transpose()?;
            self.entry(here, (before.flatten(), after), is_whole, pending)?;
        }
        Ok(())
    }

    fn is_detached(&self, written: Option<&OwnedFd>) -> Result<bool, Errno> {
        let Some(written) = written else { return Ok(false) };
        let detached = self.directory.is_detached(written.as_fd());
        detached.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    fn entry(
        &mut self,
        path: Vec<u8>,
        (before, after): (Option<NodeState>, Option<NodeState>),
        is_whole: bool,
        pending: &mut Pending,
    ) -> Result<(), Errno> {
        let is_directory =
            |state: Option<NodeState>| state.is_some_and(|state| state.kind == NodeKind::Directory);
        if is_directory(before) && is_directory(after) {
            if let (Some(before), Some(after)) = (before, after)
                && before.mode != after.mode
            {
                self.found.attributes.insert(path.clone(), after);
            }
            pending.push((path, is_whole));
            return Ok(());
        }
        if is_directory(before) {
            self.removed_below(&path)?;
        }
        if is_directory(after) {
            pending.push((path.clone(), true));
        }
        let mut difference = PathDifference { before, after, has_same_contents: false };
        match (before, after) {
            (None, None) => {
                // There is a mark of it, so it was there.
                self.found.removed_twice.push(path);
                return Ok(());
            }
            (Some(before), Some(after)) if before.kind == after.kind => {
                difference.has_same_contents = self.are_same(&path, before, after)?;
                if difference.has_same_contents {
                    self.same(&path, before, after);
                    if before.mode == after.mode {
                        return Ok(());
                    }
                }
            }
            _ => {}
        }
        self.found.paths.insert(path, difference);
        Ok(())
    }

    /// Notes what of an entry that has the same contents matters to a commit.
    fn same(&mut self, path: &[u8], before: NodeState, after: NodeState) {
        if after.has_other_names {
            let name = self.found.same_names.entry(after.identity);
            name.or_insert_with(|| path.to_vec());
        }
        let is_touched = before.mode == after.mode && before.modified != after.modified;
        if is_touched && after.kind == NodeKind::File {
            self.found.attributes.insert(path.to_vec(), after);
        }
    }

    /// Notes everything below the directory `top`, which was removed.
    fn removed_below(&mut self, top: &[u8]) -> Result<(), Errno> {
        let mut pending = vec![top.to_vec()];
        while let Some(path) = pending.pop() {
            let directory = open_directory(self.directory.base(), &path)?;
            for name in names_in(directory.as_fd(), self.stop)? {
                self.looked_at += 1;
                let here = join(&path, &name);
                let before = state_of(directory.as_fd(), &name)?;
                if before.is_some_and(|before| before.kind == NodeKind::Directory) {
                    pending.push(here.clone());
                }
                let removed = PathDifference { before, after: None, has_same_contents: false };
                self.found.paths.insert(here, removed);
            }
            if self.looked_at > ENTRIES_MAX {
                return Err(Errno::E2BIG);
            }
        }
        Ok(())
    }

    fn are_same(&self, path: &[u8], before: NodeState, after: NodeState) -> Result<bool, Errno> {
        let (base, merged) = (self.directory.base(), self.directory.merged());
        match after.kind {
            NodeKind::File if before.bytes != after.bytes => Ok(false),
            NodeKind::File if before.changed == after.changed => Ok(true),
            NodeKind::File => {
                let (left, right) = (open_file(base, path)?, open_file(merged, path)?);
                are_equal(left, right, self.stop).map_err(|error| {
                    Errno::from_raw(error.raw_os_error().unwrap_or(libc::ECANCELED))
                })
            }
            NodeKind::Link => Ok(text_at(base, path)? == text_at(merged, path)?),
            NodeKind::Device => Ok(before.number == after.number),
            NodeKind::Directory | NodeKind::Fifo | NodeKind::Socket => Ok(true),
        }
    }
}

/// The text of the link at `path` beneath `root`.
///
/// # Errors
/// There is no link.
pub fn text_at(root: BorrowedFd<'_>, path: &[u8]) -> Result<Vec<u8>, Errno> {
    let (parent, name) = crate::evaluation::patch::entry::split(path);
    link_text(open_directory(root, parent)?.as_fd(), name)
}

fn existing(opened: Result<OwnedFd, Errno>) -> Result<Option<OwnedFd>, Errno> {
    match opened {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}
