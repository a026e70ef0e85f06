//! Copies the files that a job asked for out of its workspace, after all its processes are dead.

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

/// The most omitted files that are listed. Others are only counted.
pub const OMITTED_MAX: usize = 1000;
/// The most entries of a workspace that are visited.
const ENTRIES_MAX: u64 = 1_000_000;

/// Which files are artifacts.
#[derive(Debug, Clone)]
pub struct ArtifactRules {
    include: Globs,
    deny: Globs,
    prefixes: PrefixFilter,
}

impl ArtifactRules {
    /// Parses the rules. An artifact is a file that matches `include`, unless it or a directory above
    /// it matches `deny`. A directory that matches `include` does not make its contents artifacts.
    ///
    /// # Errors
    /// The index of the first malformed pattern in its list, and the reason.
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
    /// Number of files.
    pub count_max: u64,
    /// Bytes of one file. A longer file is cut.
    pub file_bytes_max: u64,
    /// Bytes of all files together. A file that does not fit, after it is cut, is not kept.
    pub total_bytes_max: u64,
}

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
