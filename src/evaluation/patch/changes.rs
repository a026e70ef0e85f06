//! What differs between a base and what an agent made of it.
//!
//! Only the agent's writable layer is walked, so that the time depends on what it wrote and not on the size of
//! the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::entry::{
    EntryForm, FileForm, ancestors, are_equal, form_of, join, link_text, names_in, open_directory,
    open_file, split,
};
use super::error::PatchError;
use crate::evaluation::result::OmittedPath;
use cofferdam_core::SetupFailure;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::StopCheck;

/// Entries that an agent may leave.
const ENTRIES_MAX: usize = 1_000_000;
/// The longest path that is opened, bytes.
const PATH_BYTES_MAX: usize = 4000;
/// Omitted paths that are reported.
const OMITTED_MAX: usize = 1000;

/// The trees that are compared: repositories of frozen file systems.
#[derive(Debug)]
pub struct ComparedTrees {
    /// The repository as the agent got it.
    pub base: OwnedFd,
    /// The repository as the agent left it.
    pub left: OwnedFd,
    /// What the agent wrote, alone; `None` if it wrote nothing there.
    pub written: Option<OwnedFd>,
}

/// One path that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileChange {
    /// In the base.
    pub before: Option<FileForm>,
    /// As the agent left it.
    pub after: Option<FileForm>,
}

/// All paths that differ.
#[derive(Debug, Default)]
pub struct TreeChanges {
    /// By path, relative to the repository's root.
    pub files: BTreeMap<Vec<u8>, FileChange>,
    /// What a patch cannot have.
    pub omitted: Vec<OmittedPath>,
}

impl TreeChanges {
    /// Whether `path` is below a link of the base, in whose place there is a directory.
    pub fn replaces_link(&self, path: &[u8]) -> bool {
        let is_link = |ancestor: &[u8]| {
            let change = self.files.get(ancestor);
            change.is_some_and(|change| change.before == Some(FileForm::Link))
        };
        ancestors(path).any(is_link)
    }
}

/// Compares the trees. `.git`, at any depth and in any case, is not looked at.
///
/// # Errors
/// What the agent left is too much for `deadline`, a file cannot be read, or `stop` ended it.
pub fn compare(
    trees: &ComparedTrees,
    deadline: Deadline,
    stop: StopCheck<'_>,
) -> Result<TreeChanges, PatchError> {
    let Some(written) = &trees.written else { return Ok(TreeChanges::default()) };
    let mut comparison = TreeComparison {
        base: trees.base.as_fd(),
        left: trees.left.as_fd(),
        written: written.as_fd(),
        deadline,
        stop,
        entries: 0,
        pending: vec![Vec::new()],
        changes: TreeChanges::default(),
    };
    while let Some(path) = comparison.pending.pop() {
        let compared = comparison.directory(&path);
        // What was ended failed because of that.
        if compared.is_err() {
            comparison.check()?;
        }
        compared?;
    }
    Ok(comparison.changes)
}

struct TreeComparison<'trees> {
    base: BorrowedFd<'trees>,
    left: BorrowedFd<'trees>,
    written: BorrowedFd<'trees>,
    deadline: Deadline,
    stop: StopCheck<'trees>,
    entries: usize,
    /// Directories that were written to.
    pending: Vec<Vec<u8>>,
    changes: TreeChanges,
}

impl TreeComparison<'_> {
    fn directory(&mut self, path: &[u8]) -> Result<(), PatchError> {
        let written = open_directory(self.written, path).map_err(cannot("open", path))?;
        let base = found(open_directory(self.base, path)).map_err(cannot("open", path))?;
        let names = self.names(written.as_fd()).map_err(cannot("list", path))?;
        if let Some(base) = &base {
            self.removed_from(path, base.as_fd())?;
        }
        for name in names.into_iter().filter(|name| !is_git(name)) {
            self.count()?;
            let here = join(path, &name);
            if here.len() > PATH_BYTES_MAX {
                self.omit(&here, "path");
                continue;
            }
            self.entry(&here, written.as_fd(), base.as_ref().map(AsFd::as_fd))?;
        }
        Ok(())
    }

    /// Finds what the directory `path` of the base has and the agent's has not.
    fn removed_from(&mut self, path: &[u8], base: BorrowedFd<'_>) -> Result<(), PatchError> {
        let left = open_directory(self.left, path).map_err(cannot("open", path))?;
        let left = self.names(left.as_fd()).map_err(cannot("list", path))?;
        let base_names = self.names(base).map_err(cannot("list", path))?;
        for name in base_names.difference(&left).filter(|name| !is_git(name)) {
            self.removed(&join(path, name))?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: &[u8],
        written: BorrowedFd<'_>,
        base: Option<BorrowedFd<'_>>,
    ) -> Result<(), PatchError> {
        let name = split(path).1;
        let after = form_of(written, name).map_err(cannot("stat", path))?;
        let before = base.map(|base| form_of(base, name)).transpose();
        let before = before.map_err(cannot("stat", path))?.flatten();
        let after = match after {
            None | Some(EntryForm::Removed) => return Ok(()),
            Some(EntryForm::Directory) => {
                self.pending.push(path.to_vec());
                if before != Some(EntryForm::Directory) {
                    self.removed(path)?;
                }
                return Ok(());
            }
            Some(EntryForm::Special(reason)) => {
                self.omit(path, reason);
                return self.removed(path);
            }
            Some(EntryForm::File(FileForm::Link)) if is_refused_link(name) => {
                self.omit(path, "name");
                return self.removed(path);
            }
            Some(EntryForm::File(after)) => after,
        };
        let before = match before {
            Some(EntryForm::File(before)) => Some(before),
            Some(EntryForm::Directory) => {
                self.removed(path)?;
                None
            }
            _ => None,
        };
        if let (true, Some(base)) = (before == Some(after), base)
            && self.is_same(written, base, name, after).map_err(|error| {
                PatchError::Sandbox(SetupFailure::from_io(step("compare", path), &error))
            })?
        {
            return Ok(());
        }
        self.changes.files.insert(path.to_vec(), FileChange { before, after: Some(after) });
        Ok(())
    }

    /// Records that all that the base has at `path` is gone.
    fn removed(&mut self, path: &[u8]) -> Result<(), PatchError> {
        let mut pending = vec![path.to_vec()];
        while let Some(path) = pending.pop() {
            self.count()?;
            let (parent, name) = split(&path);
            let directory =
                found(open_directory(self.base, parent)).map_err(cannot("open", &path))?;
            let Some(directory) = directory else { continue };
            match form_of(directory.as_fd(), name).map_err(cannot("stat", &path))? {
                Some(EntryForm::File(before)) => {
                    let change = FileChange { before: Some(before), after: None };
                    self.changes.files.insert(path, change);
                }
                Some(EntryForm::Directory) => {
                    let below = open_directory(self.base, &path).map_err(cannot("open", &path))?;
                    let names = self.names(below.as_fd()).map_err(cannot("list", &path))?;
                    let names = names.iter().filter(|name| !is_git(name));
                    pending.extend(names.map(|name| join(&path, name)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn omit(&mut self, path: &[u8], reason: &'static str) {
        if self.changes.omitted.len() < OMITTED_MAX {
            let path = String::from_utf8_lossy(path).into_owned();
            self.changes.omitted.push(OmittedPath { path, reason });
        }
    }

    fn count(&mut self) -> Result<(), PatchError> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            let words = format!("the agent left more than {ENTRIES_MAX} changed entries");
            return Err(PatchError::Rejected(words));
        }
        self.check()
    }

    /// Whether the comparison may go on.
    fn check(&self) -> Result<(), PatchError> {
        if self.stop.is_set() {
            return Err(PatchError::Cancelled);
        }
        if self.deadline.passed() {
            return Err(PatchError::Rejected("the comparison took too long".to_owned()));
        }
        Ok(())
    }

    fn names(&self, directory: BorrowedFd<'_>) -> Result<BTreeSet<Vec<u8>>, Errno> {
        names_in(directory, StopCheck(&|| self.check().is_err()))
    }

    fn is_same(
        &self,
        written: BorrowedFd<'_>,
        base: BorrowedFd<'_>,
        name: &[u8],
        form: FileForm,
    ) -> std::io::Result<bool> {
        match form {
            FileForm::Link => Ok(link_text(written, name)? == link_text(base, name)?),
            FileForm::Plain | FileForm::Executable => {
                let (written, base) = (open_file(written, name)?, open_file(base, name)?);
                are_equal(written, base, StopCheck(&|| self.check().is_err()))
            }
        }
    }
}

/// Whether git calls a repository's own directory `name` on any system.
fn is_git(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git")
}

/// Whether git refuses a link of that name.
fn is_refused_link(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".gitmodules")
}

fn found(opened: Result<OwnedFd, Errno>) -> Result<Option<OwnedFd>, Errno> {
    match opened {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn step(what: &str, path: &[u8]) -> String {
    format!("{what} {}", String::from_utf8_lossy(path))
}

fn cannot<'path>(what: &'path str, path: &'path [u8]) -> impl Fn(Errno) -> PatchError + 'path {
    move |errno| PatchError::Sandbox(SetupFailure::from_errno(step(what, path), errno as i32))
}

#[cfg(test)]
mod tests;
