//! The rules that select the entries of a snapshot.

use crate::source::SourceDir;
use crate::walk::dir_stack::Identity;
use crate::walk::path_stack::PathStack;
use crate::walk::prefix_filter::PrefixFilter;
use cofferdam_core::job::{ExcludedGroup, excluded_group};
use cofferdam_core::values::glob::{BadGlob, Globs};

/// The limits of a snapshot. Its depth and the number of visited entries have fixed limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Number of regular files and links together, and separately of directories.
    pub files_max: u64,
    /// Size of the regular files together, including holes, bytes.
    pub bytes_max: u64,
}

/// Selects the entries of a snapshot.
///
/// Entries of an [`excluded_group`] are never selected, at any depth. Another entry is selected if it
/// or a directory above it matches `include`, and neither it nor a directory above it matches
/// `exclude`. A directory is also selected if an entry in it is.
#[derive(Debug, Clone)]
pub struct SnapshotRules {
    include: Globs,
    exclude: Globs,
    prefixes: PrefixFilter,
    left_out: Vec<Identity>,
}

/// The verdict on one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is selected; a directory with all its contents that are not excluded.
    In,
    /// A directory that is selected if an entry in it is.
    Through,
    /// It is left out; a directory with all its contents.
    Out(ExcludedGroup),
}

impl SnapshotRules {
    /// Parses the patterns.
    ///
    /// # Errors
    /// The index of the first malformed pattern in its list, and the reason.
    pub fn parse(include: &[String], exclude: &[String]) -> Result<Self, BadGlob> {
        Ok(Self {
            include: Globs::parse(include)?,
            exclude: Globs::parse(exclude)?,
            prefixes: PrefixFilter::of(include),
            left_out: Vec::new(),
        })
    }

    /// Leaves out these directories wherever they are in the source.
    #[must_use]
    pub fn without(mut self, directories: &[SourceDir]) -> Self {
        self.left_out.extend(directories.iter().map(SourceDir::identity));
        self
    }

    /// Whether the directory was passed to [`SnapshotRules::without`].
    pub(super) fn is_left_out(&self, directory: Identity) -> bool {
        self.left_out.contains(&directory)
    }

    /// The verdict on the entry `path`, if no directory above it is out. `inside` means that a
    /// directory above it is in.
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

    /// Judges each part from the top until the verdict is final, as a walk does.
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
    fn an_entry_is_in_or_out_by_itself_or_by_a_directory_above() {
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
    fn no_include_selects_what_is_always_excluded() {
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
