//! The rule on the workspace: it must be below a root, and not in the store of records.

use std::path::{Component, Path, PathBuf};

use cofferdam_core::job::{ErrorCode, JobError};

/// Where workspaces may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceRoots {
    /// Anywhere.
    Any,
    /// In or below one of these canonical directories; an empty list allows none.
    Only(Vec<PathBuf>),
}

/// Facts about the directory that a request names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkspaceFacts<'a> {
    /// Its path with links resolved; `None` if it cannot be opened.
    pub resolved: Option<&'a Path>,
    /// Whether it is the store of records or lies in it.
    pub is_in_store: bool,
}

/// Refuses a workspace outside the roots, and one in the store of records, which contains the data
/// of other jobs. If a workspace cannot be opened, its path as written must lie below a root and
/// have no `..`: a request learns only below the roots whether a directory is missing.
pub(super) fn check(
    asked: &Path,
    facts: WorkspaceFacts<'_>,
    roots: &WorkspaceRoots,
) -> Result<(), JobError> {
    let denied = || {
        let error = JobError::new(ErrorCode::WorkspaceDenied, "workspace is not allowed by policy");
        error.with("path", asked.to_string_lossy())
    };
    if facts.is_in_store {
        return Err(denied().with("reason", "it lies in the store of job records"));
    }
    let WorkspaceRoots::Only(roots) = roots else { return Ok(()) };
    let path = facts.resolved.unwrap_or(asked);
    let has_parent = path.components().any(|part| part == Component::ParentDir);
    let is_below = |root: &&Path| root.is_absolute() && path.starts_with(root);
    if !has_parent && roots.iter().any(|root| is_below(&root.as_path())) {
        return Ok(());
    }
    Err(denied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_must_lie_below_a_root_after_links_are_resolved() {
        for (asked, canonical, roots, allowed) in [
            ("/w/a", Some("/w/a"), &["/w"][..], true),
            ("/w", Some("/w"), &["/w"], true),
            ("/w/a", Some("/w/a"), &["/x", "/w"], true),
            ("/w/link", Some("/etc"), &["/w"], false),
            ("/other/link", Some("/w/a"), &["/w"], true),
            ("/wider", Some("/wider"), &["/w"], false),
            ("/w/a", Some("/w/a"), &[], false),
            ("/w/missing", None, &["/w"], true),
            ("/w/../etc", None, &["/w"], false),
            ("/etc", None, &["/w"], false),
            ("/etc", Some("/etc"), &["/"], true),
            ("/etc", Some("/etc"), &[""], false),
            ("/etc", Some("/etc"), &["etc"], false),
        ] {
            let roots = WorkspaceRoots::Only(roots.iter().map(PathBuf::from).collect());
            let facts = WorkspaceFacts { resolved: canonical.map(Path::new), is_in_store: false };
            let checked = check(Path::new(asked), facts, &roots);
            assert_eq!(checked.is_ok(), allowed, "{asked} {canonical:?} {roots:?}");
            if let Err(error) = checked {
                assert_eq!(error.code, ErrorCode::WorkspaceDenied);
                assert_eq!(error.details["path"], asked);
            }
        }
        let unknown = WorkspaceFacts::default();
        assert_eq!(check(Path::new("/a/../b"), unknown, &WorkspaceRoots::Any), Ok(()));
    }

    #[test]
    fn a_workspace_in_the_store_is_refused_below_any_root() {
        let facts = WorkspaceFacts { resolved: Some(Path::new("/w/store")), is_in_store: true };
        for roots in [WorkspaceRoots::Any, WorkspaceRoots::Only(vec!["/w".into()])] {
            let error = check(Path::new("/w/store"), facts, &roots).unwrap_err();
            assert_eq!(error.code, ErrorCode::WorkspaceDenied);
            assert_eq!(error.details["reason"], "it lies in the store of job records");
        }
    }
}
