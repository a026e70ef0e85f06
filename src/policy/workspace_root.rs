//! Where workspaces may be.

use std::path::{Component, Path};

use super::WorkspaceRoots;
use crate::spec::job::{ErrorCode, JobError};

/// Refuses a workspace outside the roots. One that cannot be resolved is taken as it is written,
/// without `..`, so that its being missing is told only to those who may look there.
pub(super) fn check(
    asked: &Path,
    canonical: Option<&Path>,
    roots: &WorkspaceRoots,
) -> Result<(), JobError> {
    let WorkspaceRoots::Only(roots) = roots else { return Ok(()) };
    let path = canonical.unwrap_or(asked);
    let climbs = path.components().any(|part| part == Component::ParentDir);
    let is_below = |root: &&Path| root.is_absolute() && path.starts_with(root);
    if !climbs && roots.iter().any(|root| is_below(&root.as_path())) {
        return Ok(());
    }
    let error = JobError::new(ErrorCode::WorkspaceDenied, "workspace is not allowed by policy");
    Err(error.with("path", asked.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_workspace_is_in_or_below_a_root_where_it_really_is() {
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
            let checked = check(Path::new(asked), canonical.map(Path::new), &roots);
            assert_eq!(checked.is_ok(), allowed, "{asked} {canonical:?} {roots:?}");
            if let Err(error) = checked {
                assert_eq!(error.code, ErrorCode::WorkspaceDenied);
                assert_eq!(error.details["path"], asked);
            }
        }
        assert_eq!(check(Path::new("/a/../b"), None, &WorkspaceRoots::Any), Ok(()));
    }
}
