//! Which files of a workspace are artifacts, and how much of them is kept.

use crate::walk::prefix_filter::PrefixFilter;
use cofferdam_core::values::glob::{BadGlob, Globs};

/// Which files are artifacts.
#[derive(Debug, Clone)]
pub struct ArtifactRules {
    pub(super) include: Globs,
    pub(super) deny: Globs,
    pub(super) prefixes: PrefixFilter,
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

/// How much of the artifacts is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactLimits {
    /// Number of files.
    pub count_max: u64,
    /// Bytes of one file. A longer file is cut.
    pub file_bytes_max: u64,
    /// Bytes of all files together. A file that does not fit, after it is cut, is not kept.
    pub total_bytes_max: u64,
}
