//! Which files of a workspace are kept, and why the others are not.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

use super::keeping::{Keeping, Opened};
use super::{ArtifactLimits, ArtifactRules, Collected, OMITTED_MAX};
use crate::error::WorkspaceError;
use crate::walk::path_stack::Trail;
use crate::walk::{Event, Kind, Walk};
use cofferdam_core::job::{ExcludedGroup, OmittedReason, excluded_group};
use cofferdam_core::values::rel_path::RelPath;

/// The longest path that is taken, bytes: that of any system call.
const PATH_BYTES_MAX: usize = 4095;

/// What holds of everything in a directory.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    denied: bool,
    secret: bool,
}

/// A collection in progress.
pub(super) struct Collection<'a> {
    rules: &'a ArtifactRules,
    limits: &'a ArtifactLimits,
    trail: Trail,
    levels: Vec<Level>,
    keeping: Keeping<'a>,
    bytes: u64,
    collected: Collected,
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
            trail: Trail::default(),
            levels: Vec::new(),
            keeping: Keeping::new(into),
            bytes: 0,
            collected: Collected::default(),
        }
    }

    pub(super) fn finish(self) -> Collected {
        self.collected
    }

    /// Of a workspace that cannot even be listed.
    pub(super) fn unreadable(mut self) -> Collected {
        self.omit(OmittedReason::Unreadable);
        self.collected
    }

    /// Walks to the end, or over `entries_max` entries.
    pub(super) fn all_of(
        mut self,
        mut walk: Walk<'_>,
        entries_max: u64,
    ) -> Result<Collected, WorkspaceError> {
        let mut entries = 0;
        while let Some(event) = walk.advance()? {
            if let Event::Leave { .. } = event {
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
        self.trail.leave();
        self.levels.pop();
        self.keeping.leave(&self.trail).map_err(|fault| fault.at(self.trail.shown()))
    }

    fn take(&mut self, walk: &mut Walk<'_>, event: &Event) -> Result<(), WorkspaceError> {
        match event {
            Event::Leave { .. } => Ok(()),
            Event::Enter { name, .. } => {
                self.enter(walk, name);
                Ok(())
            }
            Event::Entry { name, kind } => {
                self.trail.enter(name);
                let taken = self.entry(walk, name, *kind);
                self.trail.leave();
                taken
            }
            Event::Unopened { name, errno } => {
                self.trail.enter(name);
                self.unopened(*errno);
                self.trail.leave();
                Ok(())
            }
        }
    }

    fn enter(&mut self, walk: &mut Walk<'_>, name: &CStr) {
        self.trail.enter(name);
        let level = self.level(true);
        self.levels.push(level);
        if !self.rules.reach.is_below(self.trail.bytes()) {
            walk.pass_over();
        } else if self.is_too_long() {
            walk.pass_over();
            self.omit(OmittedReason::TreeLimit);
        }
    }

    /// What holds of the entry the trail leads to, by itself or a directory above.
    fn level(&self, is_directory: bool) -> Level {
        let above = self.levels.last().copied().unwrap_or_default();
        let group = excluded_group(self.trail.parent_name(), self.trail.name(), is_directory);
        Level {
            denied: above.denied || self.rules.deny.matches(self.trail.path()),
            secret: above.secret || group == Some(ExcludedGroup::Secrets),
        }
    }

    fn is_too_long(&self) -> bool {
        self.trail.bytes().len() > PATH_BYTES_MAX
    }

    fn entry(&mut self, walk: &Walk<'_>, name: &CStr, kind: Kind) -> Result<(), WorkspaceError> {
        if !self.rules.include.matches(self.trail.path()) {
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

    /// The path of a match, if nothing that is known before it is opened speaks against it.
    fn path_to_keep(&self, kind: Kind) -> Result<RelPath, OmittedReason> {
        let Level { denied, secret } = self.level(false);
        if denied {
            return Err(OmittedReason::Denied);
        }
        if secret {
            return Err(OmittedReason::Secret);
        }
        if kind != Kind::Regular {
            return Err(OmittedReason::NotARegularFile);
        }
        if self.is_too_long() {
            return Err(OmittedReason::TreeLimit);
        }
        let text = str::from_utf8(self.trail.bytes()).map_err(|_| OmittedReason::NotText)?;
        let path = RelPath::parse(text).map_err(|_| OmittedReason::TreeLimit)?;
        if self.collected.kept.len() as u64 >= self.limits.count_max {
            return Err(OmittedReason::CountLimit);
        }
        Ok(path)
    }

    fn keep(
        &mut self,
        walk: &Walk<'_>,
        name: &CStr,
        path: RelPath,
    ) -> Result<Result<(), OmittedReason>, WorkspaceError> {
        let opened = match Opened::regular(walk.directory(), name) {
            Ok(opened) => opened,
            Err(reason) => return Ok(Err(reason)),
        };
        let wanted = opened.bytes.min(self.limits.file_bytes_max);
        if self.bytes.saturating_add(wanted) > self.limits.total_bytes_max {
            return Ok(Err(OmittedReason::TotalLimit));
        }
        let kept = self.keeping.keep(&self.trail, name, &opened, wanted);
        let Some((bytes, sha256)) = kept.map_err(|fault| fault.at(self.trail.shown()))? else {
            return Ok(Err(OmittedReason::Unreadable));
        };
        let truncated = opened.bytes > wanted;
        self.bytes += bytes;
        self.collected.kept.push(super::KeptFile { path, bytes, sha256, truncated });
        Ok(Ok(()))
    }

    /// A mount, or a directory that cannot be read: told of where a match may be in it.
    fn unopened(&mut self, errno: Errno) {
        let matches = self.rules.include.matches(self.trail.path());
        if matches || self.rules.reach.is_below(self.trail.bytes()) {
            let Level { denied, secret } = self.level(true);
            self.omit(match errno {
                _ if denied => OmittedReason::Denied,
                _ if secret => OmittedReason::Secret,
                Errno::EXDEV => OmittedReason::NotARegularFile,
                _ => OmittedReason::Unreadable,
            });
        }
    }

    /// Tells of what the trail leads to.
    fn omit(&mut self, reason: OmittedReason) {
        if self.collected.omitted.len() < OMITTED_MAX {
            let path = if self.is_too_long() { &self.trail.shown() } else { self.trail.path() };
            let text = match self.trail.depth() {
                0 => ".".to_owned(),
                _ => path.to_string_lossy().into_owned(),
            };
            self.collected.omitted.push((text, reason));
        } else {
            self.collected.omitted_beyond += 1;
        }
    }

    /// Tells where the walk ended, in the place of the last omission where there is none left.
    fn stop(&mut self, event: &Event) {
        let (Event::Enter { name, .. }
        | Event::Leave { name }
        | Event::Entry { name, .. }
        | Event::Unopened { name, .. }) = event;
        self.trail.enter(name);
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
    fn a_tree_larger_than_is_looked_through_gives_what_was_found_before() {
        let (workspace, store) = (tempdir().unwrap(), tempdir().unwrap());
        for name in ["a", "b", "c", "d"] {
            fs::write(workspace.path().join(name), name).unwrap();
        }
        let (from, into) = (directory(workspace.path()), directory(store.path()));
        let rules = ArtifactRules::parse(&["**".to_owned()], &[]).unwrap();
        let limits = ArtifactLimits { count_max: 10, file_bytes_max: 10, total_bytes_max: 100 };
        for (entries_max, kept, omitted) in [(4, 4, None), (3, 3, Some("d")), (0, 0, Some(""))] {
            let collection = Collection::new(&rules, &limits, into.as_fd());
            let walk = Walk::to_choose(from.as_fd(), entries_max).unwrap();
            let mut collected = collection.all_of(walk, entries_max).unwrap();
            assert_eq!(collected.kept.len(), kept);
            if entries_max == 0 {
                // Which names a walk holds that cannot hold all is the file system's choice.
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
