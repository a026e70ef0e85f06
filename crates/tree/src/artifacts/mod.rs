//! Copies the files that a job asked for out of its workspace, after all its processes are dead.

mod collection;
mod rules;
mod store;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;

use self::collection::Collection;
use super::error::WorkspaceError;
use super::walk::TreeWalk;

pub use self::collection::{CollectedArtifacts, KeptFile, OMITTED_MAX};
pub use self::rules::{ArtifactLimits, ArtifactRules};

/// The most entries of a workspace that are visited.
const ENTRIES_MAX: u64 = 1_000_000;

/// Copies the files of `workspace` that `rules` select to the same paths below the directory `into`,
/// which must be empty and inaccessible to tenants. Files get mode 0600, directories mode 0700, and
/// both belong to the caller.
///
/// A tenant may have prepared the workspace. Links and mounts are not followed, and only regular
/// files are read. Files that are too deep, too many or unreadable are listed in
/// [`CollectedArtifacts::omitted`] and are not errors. If several reasons apply to a file, the first
/// is reported: denied, secret, not a regular file, too deep, not text, the limits.
///
/// # Errors
/// A file could not be written, or the workspace changed during the walk. `into` then holds a part.
pub fn collect_artifacts(
    workspace: BorrowedFd<'_>,
    rules: &ArtifactRules,
    limits: &ArtifactLimits,
    into: BorrowedFd<'_>,
) -> Result<CollectedArtifacts, WorkspaceError> {
    let collection = Collection::new(rules, limits, into);
    if rules.include.is_empty() {
        return Ok(collection.finish());
    }
    match TreeWalk::to_choose(workspace, ENTRIES_MAX) {
        Ok(walk) => collection.all_of(walk, ENTRIES_MAX),
        Err(_) => Ok(collection.unreadable()),
    }
}
