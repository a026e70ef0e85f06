//! Takes out of a workspace the files a job asked for, once everything in its box is dead.

mod collection;
mod store;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;

use self::collection::Collection;
use super::error::WorkspaceError;
use super::walk::TreeWalk;
use crate::walk::prefix_filter::PrefixFilter;
use cofferdam_core::job::OmittedReason;
use cofferdam_core::values::glob::{BadGlob, Globs};
use cofferdam_core::values::rel_path::RelPath;

/// How many omitted files are listed; the others are only counted.
pub const OMITTED_MAX: usize = 1000;
/// Entries of the workspace that are looked at, whatever they are.
const ENTRIES_MAX: u64 = 1_000_000;

/// Which files are artifacts.
#[derive(Debug, Clone)]
pub struct ArtifactRules {
    include: Globs,
    deny: Globs,
    prefixes: PrefixFilter,
}

impl ArtifactRules {
    /// An artifact is a file that matches `include`, where neither it nor a directory above it
    /// matches `deny`. A directory that matches `include` is no artifact, and does not make its
    /// contents any. Fails with the first text that is no pattern, by its place in its list.
    ///
    /// # Errors
    /// A pattern that cannot be read.
    pub fn parse(include: &[String], deny: &[String]) -> Result<Self, BadGlob> {
        Ok(Self {
            include: Globs::parse(include)?,
            deny: Globs::parse(deny)?,
            prefixes: PrefixFilter::of(include),
        })
    }
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactLimits {
    /// Files.
    pub count_max: u64,
    /// Of one file; a longer one is cut.
    pub file_bytes_max: u64,
    /// Of all together; a file that does not fit whole, or as it is cut, is not kept.
    pub total_bytes_max: u64,
}

/// A file that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Where it was in the workspace, and is among the artifacts.
    pub path: RelPath,
    /// How much of it is kept, bytes.
    pub bytes: u64,
    /// SHA-256 of what is kept, 64 hexadecimal digits.
    pub sha256: String,
    /// Whether it was longer.
    pub truncated: bool,
}

/// What was kept and what was not, each in the order of the walk: by the bytes of the names in
/// every directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectedArtifacts {
    /// The files that were kept.
    pub kept: Vec<KeptFile>,
    /// The first [`OMITTED_MAX`] that match and were not kept, bytes that are not UTF-8 replaced
    /// and a path that is too long for any call cut. One that ended the collection is always
    /// the last of them.
    pub omitted: Vec<(String, OmittedReason)>,
    /// How many more there were.
    pub omitted_beyond: u64,
}

/// Copies the files of `workspace` that `rules` take below the directory `into`, which must be
/// empty and out of any tenant's reach, at the same paths: plain files of ours, mode 0600, in
/// directories of mode 0700.
///
/// The workspace may be whatever a tenant left: links and mounts are not followed, nothing but a
/// regular file is read, and what is too deep, too much or not readable is told in
/// [`CollectedArtifacts::omitted`] and is no error. Of several reasons not to keep a file the first is
/// told: denied, secret, not a regular file, too deep, not text, the limits.
///
/// # Errors
/// What could not be written, or a workspace that changed while it was walked; `into` then
/// holds a part.
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
