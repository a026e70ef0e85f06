//! Decides which files of a workspace are kept, and why the others are not.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

use super::rules::{ArtifactLimits, ArtifactRules};
use super::store::{ArtifactStore, OpenedArtifact};
use crate::error::WorkspaceError;
use crate::walk::path_stack::PathStack;
use crate::walk::{FileKind, TreeWalk, WalkEvent};
use cofferdam_core::job::{ExcludedGroup, OmittedReason, excluded_group};
use cofferdam_core::values::rel_path::RelPath;

/// The most omitted files that are listed. Others are only counted.
pub const OMITTED_MAX: usize = 1000;
/// The longest path, bytes: the limit of system calls.
const PATH_BYTES_MAX: usize = 4095;

/// A file that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Its path, in the workspace and below the target directory.
    pub path: RelPath,
    /// Size of the kept part, bytes.
    pub bytes: u64,
    /// SHA-256 of the kept part, 64 hexadecimal digits.
    pub sha256: String,
    /// Whether the file was longer.
    pub truncated: bool,
}

/// The files that were kept and those that were not, both in the order of the walk: sorted by the
/// bytes of the names in each directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectedArtifacts {
    /// The files that were kept.
    pub kept: Vec<KeptFile>,
    /// The first [`OMITTED_MAX`] matching files that were not kept. Bytes that are not UTF-8 are
    /// replaced, and paths too long for a system call are cut. A file that ended the collection is
    /// always the last.
    pub omitted: Vec<(String, OmittedReason)>,
    /// The number of further omitted files.
    pub omitted_beyond: u64,
}

/// The rules that apply to everything in a directory.
#[derive(Debug, Clone, Copy, Default)]
struct InheritedRules {
    denied: bool,
    secret: bool,
}

/// A collection in progress.
pub(super) struct Collection<'a> {
    rules: &'a ArtifactRules,
    limits: &'a ArtifactLimits,
    path: PathStack,
    levels: Vec<InheritedRules>,
    store: ArtifactStore<'a>,
    bytes: u64,
    collected: CollectedArtifacts,
}

impl<'a> Collection<'a> {
    pub(super) fn new(
        rules: &'a ArtifactRules,
        limits: &'a ArtifactLimits,
        into: BorrowedFd<'a>,
    ) -> Self {
        Self {
            rules,
            limits,
            path: PathStack::default(),
            levels: Vec::new(),
            store: ArtifactStore::new(into),
            bytes: 0,
            collected: CollectedArtifacts::default(),
        }
    }

    pub(super) fn finish(self) -> CollectedArtifacts {
        self.collected
    }

    /// The result for a workspace that cannot be listed.
    pub(super) fn unreadable(mut self) -> CollectedArtifacts {
        self.omit(OmittedReason::Unreadable);
        self.collected
    }

    /// Walks to the end, but over at most `entries_max` entries.
    pub(super) fn all_of(
        mut self,
        mut walk: TreeWalk<'_>,
        entries_max: u64,
    ) -> Result<CollectedArtifacts, WorkspaceError> {
        let mut entries = 0;
        while let Some(event) = walk.advance()? {
            if let WalkEvent::Leave { .. } = event {
                self.leave()?;
                continue;
            }
            entries += 1;
            if entries > entries_max {
                self.stop(&event);
                break;
            }
            self.take(&mut walk, &event)?;
        }
        Ok(self.collected)
    }

    fn leave(&mut self) -> Result<(), WorkspaceError> {
        self.path.leave();
        self.levels.pop();
        self.store.leave(&self.path).map_err(|fault| fault.at(self.path.shown()))
    }

    fn take(&mut self, walk: &mut TreeWalk<'_>, event: &WalkEvent) -> Result<(), WorkspaceError> {
        match event {
            WalkEvent::Leave { .. } => Ok(()),
            WalkEvent::Enter { name, .. } => {
                self.enter(walk, name);
                Ok(())
            }
            WalkEvent::Entry { name, kind } => {
                self.path.enter(name);
                let taken = self.entry(walk, name, *kind);
                self.path.leave();
                taken
            }
            WalkEvent::Unopened { name, errno } => {
                self.path.enter(name);
                self.unopened(*errno);
                self.path.leave();
                Ok(())
            }
        }
    }

    fn enter(&mut self, walk: &mut TreeWalk<'_>, name: &CStr) {
        self.path.enter(name);
        let level = self.level(true);
        self.levels.push(level);
        if !self.rules.prefixes.is_below(self.path.bytes()) {
            walk.pass_over();
        } else if self.is_too_long() {
            walk.pass_over();
            self.omit(OmittedReason::TreeLimit);
        }
    }

    /// The rules that apply to the current entry, by itself or by a directory above.
    fn level(&self, is_directory: bool) -> InheritedRules {
        let above = self.levels.last().copied().unwrap_or_default();
        let group = excluded_group(self.path.parent_name(), self.path.name(), is_directory);
        InheritedRules {
            denied: above.denied || self.rules.deny.matches(self.path.path()),
            secret: above.secret || group == Some(ExcludedGroup::Secrets),
        }
    }

    fn is_too_long(&self) -> bool {
        self.path.bytes().len() > PATH_BYTES_MAX
    }

    fn entry(
        &mut self,
        walk: &TreeWalk<'_>,
        name: &CStr,
        kind: FileKind,
    ) -> Result<(), WorkspaceError> {
        if !self.rules.include.matches(self.path.path()) {
            return Ok(());
        }
        let kept = match self.path_to_keep(kind) {
            Ok(path) => self.keep(walk, name, path)?,
            Err(reason) => Err(reason),
        };
        if let Err(reason) = kept {
            self.omit(reason);
        }
        Ok(())
    }

    /// The path of a match, unless a reason to omit it is known before it is opened.
    fn path_to_keep(&self, kind: FileKind) -> Result<RelPath, OmittedReason> {
        let InheritedRules { denied, secret } = self.level(false);
        if denied {
            return Err(OmittedReason::Denied);
        }
        if secret {
            return Err(OmittedReason::Secret);
        }
        if kind != FileKind::Regular {
            return Err(OmittedReason::NotARegularFile);
        }
        if self.is_too_long() {
            return Err(OmittedReason::TreeLimit);
        }
        let text = str::from_utf8(self.path.bytes()).map_err(|_| OmittedReason::NotText)?;
        let path = RelPath::parse(text).map_err(|_| OmittedReason::TreeLimit)?;
        if self.collected.kept.len() as u64 >= self.limits.count_max {
            return Err(OmittedReason::CountLimit);
        }
        Ok(path)
    }

    fn keep(
        &mut self,
        walk: &TreeWalk<'_>,
        name: &CStr,
        path: RelPath,
    ) -> Result<Result<(), OmittedReason>, WorkspaceError> {
        let opened = match OpenedArtifact::regular(walk.directory(), name) {
            Ok(opened) => opened,
            Err(reason) => return Ok(Err(reason)),
        };
        let wanted = opened.bytes.min(self.limits.file_bytes_max);
        if self.bytes.saturating_add(wanted) > self.limits.total_bytes_max {
            return Ok(Err(OmittedReason::TotalLimit));
        }
        let kept = self.store.keep(&self.path, name, &opened, wanted);
        let Some((bytes, sha256)) = kept.map_err(|fault| fault.at(self.path.shown()))? else {
            return Ok(Err(OmittedReason::Unreadable));
        };
        let truncated = opened.bytes > wanted;
        self.bytes += bytes;
        self.collected.kept.push(KeptFile { path, bytes, sha256, truncated });
        Ok(Ok(()))
    }

    /// Omits a mount or an unreadable directory, if it may contain a match.
    fn unopened(&mut self, errno: Errno) {
        let matches = self.rules.include.matches(self.path.path());
        if matches || self.rules.prefixes.is_below(self.path.bytes()) {
            let InheritedRules { denied, secret } = self.level(true);
            self.omit(match errno {
                _ if denied => OmittedReason::Denied,
                _ if secret => OmittedReason::Secret,
                Errno::EXDEV => OmittedReason::NotARegularFile,
                _ => OmittedReason::Unreadable,
            });
        }
    }

    /// Records the current entry as omitted.
    fn omit(&mut self, reason: OmittedReason) {
        if self.collected.omitted.len() < OMITTED_MAX {
            let path = if self.is_too_long() { &self.path.shown() } else { self.path.path() };
            let text = match self.path.depth() {
                0 => ".".to_owned(),
                _ => path.to_string_lossy().into_owned(),
            };
            self.collected.omitted.push((text, reason));
        } else {
            self.collected.omitted_beyond += 1;
        }
    }

    /// Records where the walk ended. If the list is full, it replaces the last entry.
    fn stop(&mut self, event: &WalkEvent) {
        let (WalkEvent::Enter { name, .. }
        | WalkEvent::Leave { name }
        | WalkEvent::Entry { name, .. }
        | WalkEvent::Unopened { name, .. }) = event;
        self.path.enter(name);
        if self.collected.omitted.len() == OMITTED_MAX {
            self.collected.omitted.pop();
            self.collected.omitted_beyond += 1;
        }
        self.omit(OmittedReason::TreeLimit);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;

    use tempfile::tempdir;

    use super::*;
    use crate::testing::directory;

    #[test]
    fn a_tree_too_large_gives_the_files_found_before_the_limit() {
        let (workspace, store) = (tempdir().unwrap(), tempdir().unwrap());
        for name in ["a", "b", "c", "d"] {
            fs::write(workspace.path().join(name), name).unwrap();
        }
        let (from, into) = (directory(workspace.path()), directory(store.path()));
        let rules = ArtifactRules::parse(&["**".to_owned()], &[]).unwrap();
        let limits = ArtifactLimits { count_max: 10, file_bytes_max: 10, total_bytes_max: 100 };
        for (entries_max, kept, omitted) in [(4, 4, None), (3, 3, Some("d")), (0, 0, Some(""))] {
            let collection = Collection::new(&rules, &limits, into.as_fd());
            let walk = TreeWalk::to_choose(from.as_fd(), entries_max).unwrap();
            let mut collected = collection.all_of(walk, entries_max).unwrap();
            assert_eq!(collected.kept.len(), kept);
            if entries_max == 0 {
                // Which names a walk holds if it cannot hold all depends on the file system.
                collected.omitted[0].0.clear();
            }
            let expected = omitted.map(|path| (path.to_owned(), OmittedReason::TreeLimit));
            assert!(collected.omitted.iter().eq(expected.as_ref()), "{collected:?}");
            for name in fs::read_dir(store.path()).unwrap() {
                fs::remove_file(name.unwrap().path()).unwrap();
            }
        }
    }
}
