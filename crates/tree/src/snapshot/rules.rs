//! What of a source is part of a snapshot.

use crate::source::SourceDir;
use crate::walk::dir_stack::Identity;
use crate::walk::path_stack::PathStack;
use crate::walk::prefix_filter::PrefixFilter;
use cofferdam_core::job::{ExcludedGroup, excluded_group};
use cofferdam_core::values::glob::{BadGlob, Globs};

/// Which entries a snapshot takes.
///
/// What [`excluded_group`] names is never taken, at any depth, whatever the patterns say. Of the
/// rest an entry is taken when it or a directory above it matches `include`, and neither it nor a
/// directory above it matches `exclude`; and a directory when something in it is.
#[derive(Debug, Clone)]
pub struct SnapshotRules {
    include: Globs,
    exclude: Globs,
    prefixes: PrefixFilter,
    left_out: Vec<Identity>,
}

/// What the rules say of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is taken, and a directory with all that is in it and not excluded.
    In,
    /// A directory that is taken when something in it is.
    Through,
    /// It is left out, and a directory with all that is in it.
    Out(ExcludedGroup),
}

impl SnapshotRules {
    /// Takes all patterns, or names the first that is none, by its place in its list.
    ///
    /// # Errors
    /// A pattern that cannot be read.
    pub fn parse(include: &[String], exclude: &[String]) -> Result<Self, BadGlob> {
        Ok(Self {
            include: Globs::parse(include)?,
            exclude: Globs::parse(exclude)?,
            prefixes: PrefixFilter::of(include),
            left_out: Vec::new(),
        })
    }

    /// Leaves these directories out, wherever in the source they are found.
    #[must_use]
    pub fn without(mut self, directories: &[SourceDir]) -> Self {
        self.left_out.extend(directories.iter().map(SourceDir::identity));
        self
    }

    /// Whether the directory is one of those that were named.
    pub(super) fn is_left_out(&self, directory: Identity) -> bool {
        self.left_out.contains(&directory)
    }

    /// Of the entry that `path` leads to, when nothing above it is out; `inside` where something
    /// above it is in.
    pub(super) fn judge(&self, path: &PathStack, inside: bool, is_directory: bool) -> Verdict {
        if let Some(group) = excluded_group(path.parent_name(), path.name(), is_directory) {
            return Verdict::Out(group);
        }
        if self.exclude.matches(path.path()) {
            Verdict::Out(ExcludedGroup::Request)
        } else if inside || self.include.matches(path.path()) {
            Verdict::In
        } else if is_directory && self.prefixes.is_below(path.bytes()) {
            Verdict::Through
        } else {
            Verdict::Out(ExcludedGroup::Request)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::Verdict::{In, Out, Through};
    use super::*;

    fn rules(include: &[&str], exclude: &[&str]) -> SnapshotRules {
        let texts =
            |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
        SnapshotRules::parse(&texts(include), &texts(exclude)).unwrap()
    }

    /// As a walk asks: for each part from the top until the verdict is final.
    fn verdict(rules: &SnapshotRules, path: &str) -> Verdict {
        let (mut stack, mut inside) = (PathStack::default(), false);
        let text = path.trim_end_matches('/');
        let parts: Vec<_> = text.split('/').collect();
        for (at, part) in parts.iter().enumerate() {
            stack.enter(&CString::new(*part).unwrap());
            let is_last = at + 1 == parts.len();
            let verdict = rules.judge(&stack, inside, !is_last || path.ends_with('/'));
            if is_last || matches!(verdict, Out(_)) {
                return verdict;
            }
            inside |= verdict == In;
        }
        unreachable!("a path has a part")
    }

    #[test]
    fn an_entry_is_in_by_itself_or_a_directory_above_and_out_likewise() {
        let request = Out(ExcludedGroup::Request);
        for (include, exclude, path, expected) in [
            (&["**"][..], &[][..], "a/b", In),
            (&["**"], &["a"], "a/b", request),
            (&["**"], &["**/*.log"], "a/b.log", request),
            (&["**"], &["*.log"], "a/b.log", In),
            (&["src"], &[], "src/a/b", In),
            (&["src"], &["src/a"], "src/a/b", request),
            (&["src/**"], &[], "src/", Through),
            (&["src/**"], &[], "src/a", In),
            (&["src/**"], &[], "docs/", request),
            (&["*.py"], &[], "a/", request),
            (&["*.py"], &[], "a.py/b", In),
            (&["**/*.py"], &[], "a/", Through),
            (&["**/*.py"], &[], "a/b", request),
            (&[], &[], "a", request),
        ] {
            assert_eq!(verdict(&rules(include, exclude), path), expected, "{include:?} {path}");
        }
    }

    #[test]
    fn no_include_reopens_what_is_always_out() {
        for (path, group) in [
            (".git/", ExcludedGroup::Vcs),
            ("a/.git", ExcludedGroup::Vcs),
            ("a/node_modules/x/main.js", ExcludedGroup::Dependencies),
            ("vendor/bundle/", ExcludedGroup::Dependencies),
            ("a/b/.env", ExcludedGroup::Secrets),
        ] {
            for include in [path.trim_end_matches('/'), "**", "a/**"] {
                assert_eq!(verdict(&rules(&[include, "**"], &[]), path), Out(group), "{path}");
            }
        }
    }
}
