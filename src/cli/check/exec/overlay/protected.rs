//! Paths that a command cannot change, and whose changes are never committed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::states::{NodeKind, NodeState, state_of};
use crate::cli::failure::Failure;
use crate::evaluation::patch::entry::{ancestors, join, names_in, open_directory, split};
use cofferdam_core::SetupFailure;
use cofferdam_core::values::glob::Globs;
use cofferdam_tree::StopCheck;

/// What git reads at the next command of a repository, and runs programs for.
const DEFAULTS: [&str; 4] =
    [".git/hooks", ".git/config", ".git/info", ".git/modules/**/{config,hooks}"];
/// A file of this name leads git elsewhere; a directory of this name is a repository.
const GIT: &[u8] = b".git";
/// Directories that are looked through for protected paths.
const DIRECTORIES_MAX: usize = 500_000;
/// Protected paths that exist: each is a mount.
const PROTECTED_MAX: usize = 1000;

/// Which paths are protected.
#[derive(Debug)]
pub struct ProtectRules {
    /// What is looked for at the start.
    patterns: Vec<String>,
    /// The same, and the defaults in any repository below.
    protected: Globs,
    lifted: Globs,
    protects_git_files: bool,
}

impl ProtectRules {
    /// The defaults and `protect` without `unprotect`.
    pub fn parse(protect: &[String], unprotect: &[String]) -> Result<Self, Failure> {
        let own =
            protect.iter().map(|glob| normal("--protect", glob)).collect::<Result<Vec<_>, _>>()?;
        let lifted = unprotect
            .iter()
            .map(|glob| normal("--unprotect", glob))
            .collect::<Result<Vec<_>, _>>()?;
        let defaults = DEFAULTS.iter().map(|glob| (*glob).to_owned());
        // Naming a default lifts the whole pattern, not only the paths that it matches now.
        let patterns: Vec<String> =
            defaults.chain(own).filter(|glob| !lifted.contains(glob)).collect();
        let nested = patterns.iter().filter(|glob| DEFAULTS.contains(&glob.as_str()));
        let nested: Vec<String> = nested.map(|glob| format!("**/{glob}")).collect();
        let all = [patterns.clone(), nested].concat();
        let parse = |option, globs: &[String]| {
            Globs::parse(globs).map_err(|bad| Failure::option(option, bad.reason))
        };
        Ok(Self {
            protected: parse("--protect", &all)?,
            protects_git_files: !lifted.iter().any(|glob| glob == ".git"),
            lifted: parse("--unprotect", &lifted)?,
            patterns,
        })
    }

    /// Whether a change of `path`, which has one of these states, is never committed.
    pub fn covers(&self, path: &[u8], states: [Option<NodeState>; 2]) -> bool {
        if self.is_lifted(path) {
            return false;
        }
        let is_file = |state: &NodeState| state.kind != NodeKind::Directory;
        let is_git_file =
            self.protects_git_files && split(path).1 == GIT && states.iter().flatten().any(is_file);
        is_git_file || std::iter::once(path).chain(ancestors(path)).any(|path| self.names(path))
    }

    /// The protected paths that exist beneath `root`, none below another.
    pub fn find(
        &self,
        root: BorrowedFd<'_>,
        stop: StopCheck<'_>,
    ) -> Result<Vec<Vec<u8>>, SetupFailure> {
        let failed = |errno| SetupFailure::from_errno("look for protected paths", errno as i32);
        let mut found = BTreeSet::new();
        let git = state_of(root, GIT).map_err(failed)?;
        if git.is_some_and(|git| self.covers(GIT, [Some(git), None])) {
            found.insert(GIT.to_vec());
        }
        for pattern in &self.patterns {
            self.find_one(root, pattern, stop, &mut found)?;
        }
        if found.len() > PROTECTED_MAX {
            let words = format!("more than {PROTECTED_MAX} of them exist; name directories");
            return Err(SetupFailure::from_words("look for protected paths", words));
        }
        let is_outermost = |path: &&Vec<u8>| !ancestors(path).any(|above| found.contains(above));
        Ok(found.iter().filter(is_outermost).cloned().collect())
    }

    /// Adds what `pattern` matches.
    fn find_one(
        &self,
        root: BorrowedFd<'_>,
        pattern: &str,
        stop: StopCheck<'_>,
        found: &mut BTreeSet<Vec<u8>>,
    ) -> Result<(), SetupFailure> {
        let failed = |errno| SetupFailure::from_errno("look for protected paths", errno as i32);
        let mut pending = vec![literal_part(pattern)];
        let mut walked = 0;
        while let Some(path) = pending.pop() {
            let is_named = self.names(&path) && !self.is_lifted(&path);
            if is_named && exists(root, &path).map_err(failed)? {
                found.insert(path);
                continue;
            }
            if path == pattern.as_bytes() {
                continue;
            }
            walked += 1;
            if walked > DIRECTORIES_MAX {
                let words = format!("more than {DIRECTORIES_MAX} directories for {pattern}");
                return Err(SetupFailure::from_words("look for protected paths", words));
            }
            let below = self.list(root, &path, stop, found).map_err(failed)?;
            pending.extend(below.into_iter().filter(|below| may_hold(pattern, below)));
        }
        Ok(())
    }

    /// Looks at what is in the directory `path`, if it is one; returns the directories that are not protected.
    fn list(
        &self,
        root: BorrowedFd<'_>,
        path: &[u8],
        stop: StopCheck<'_>,
        found: &mut BTreeSet<Vec<u8>>,
    ) -> Result<Vec<Vec<u8>>, nix::errno::Errno> {
        let mut below = Vec::new();
        let Ok(directory) = open_directory(root, path) else { return Ok(below) };
        for name in names_in(directory.as_fd(), stop)? {
            let here = join(path, &name);
            let Some(state) = state_of(directory.as_fd(), &name)? else { continue };
            if self.names(&here) && !self.is_lifted(&here) {
                found.insert(here);
            } else if state.kind == NodeKind::Directory {
                below.push(here);
            }
        }
        Ok(below)
    }

    fn names(&self, path: &[u8]) -> bool {
        self.protected.matches(as_path(path))
    }

    fn is_lifted(&self, path: &[u8]) -> bool {
        std::iter::once(path).chain(ancestors(path)).any(|path| self.lifted.matches(as_path(path)))
    }
}

fn exists(root: BorrowedFd<'_>, path: &[u8]) -> Result<bool, nix::errno::Errno> {
    let (parent, name) = split(path);
    if name.is_empty() {
        return Ok(false);
    }
    let Ok(directory) = open_directory(root, parent) else { return Ok(false) };
    Ok(state_of(directory.as_fd(), name)?.is_some())
}

/// Whether something in the directory `path` may match `pattern`.
fn may_hold(pattern: &str, path: &[u8]) -> bool {
    // A class or a choice may contain a slash, and `**` is any number of parts.
    let is_counted = !pattern.contains("**") && !pattern.contains(['[', '{', '\\']);
    let parts = |path: &[u8]| path.split(|byte| *byte == b'/').count();
    !is_counted || parts(path) < parts(pattern.as_bytes())
}

/// The names before the first part of `pattern` that is more than a name.
fn literal_part(pattern: &str) -> Vec<u8> {
    const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];
    let parts = pattern.split('/').take_while(|part| !part.contains(SPECIAL));
    parts.collect::<Vec<_>>().join("/").into_bytes()
}

/// `glob` without `./`, and without a slash at an end.
fn normal(option: &str, glob: &str) -> Result<String, Failure> {
    let parts: Vec<&str> = glob.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.is_empty() || parts.contains(&"..") {
        return Err(Failure::option(option, "want a glob of paths in DIR, without .."));
    }
    Ok(parts.join("/"))
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(kind: NodeKind) -> [Option<NodeState>; 2] {
        [Some(NodeState { kind, ..NodeState::default() }), None]
    }

    #[test]
    fn what_git_runs_is_protected_by_default_in_every_repository() {
        let (file, directory) = (state(NodeKind::File), state(NodeKind::Directory));
        for (path, states, covered) in [
            (".git/hooks", directory, true),
            (".git/hooks/pre-commit", file, true),
            (".git/config", file, true),
            (".git/info/attributes", file, true),
            (".git/modules/a/b/hooks/x", file, true),
            ("sub/.git/config", file, true),
            (".git", file, true),
            ("sub/.git", state(NodeKind::Link), true),
            (".git", directory, false),
            (".git/index", file, false),
            (".git/configs", file, false),
            ("hooks/x", file, false),
        ] {
            let rules = ProtectRules::parse(&[], &[]).unwrap();
            assert_eq!(rules.covers(path.as_bytes(), states), covered, "{path}");
        }
    }

    #[test]
    fn protection_is_added_and_lifted_by_globs() {
        let file = state(NodeKind::File);
        for (protect, unprotect, path, covered) in [
            (&["*.lock"][..], &[][..], "Cargo.lock", true),
            (&["*.lock"], &[], "a/Cargo.lock", false),
            (&["./keys/"], &[], "keys/a", true),
            (&[], &[".git/hooks"], ".git/hooks/a", false),
            (&[], &[".git/hooks"], ".git/config", true),
            (&[], &[".git"], ".git/config", false),
            (&[], &[".git"], ".git", false),
            (&["*.lock"], &["a.lock"], "a.lock", false),
            (&["*.lock"], &["a.lock"], "b.lock", true),
        ] {
            let own =
                |globs: &[&str]| globs.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>();
            let rules = ProtectRules::parse(&own(protect), &own(unprotect)).unwrap();
            assert_eq!(
                rules.covers(path.as_bytes(), file),
                covered,
                "{protect:?} {unprotect:?} {path}"
            );
        }
        for bad in ["", "/", "../x", "a/../b", "["] {
            assert!(ProtectRules::parse(&[bad.to_owned()], &[]).is_err(), "{bad:?}");
        }
    }
}
