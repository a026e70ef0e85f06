//! The limits of an archive of a task, and what its description says about it.

use std::path::PathBuf;

/// The limits of an archive of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrictLimits {
    /// Entries of the archive.
    pub entries_max: u64,
    /// The contents of the files together, bytes.
    pub bytes_max: u64,
    /// Nested directories.
    pub depth_max: usize,
}

impl Default for StrictLimits {
    fn default() -> Self {
        Self { entries_max: 100_000, bytes_max: 1 << 30, depth_max: 256 }
    }
}

/// What the task's own description says about its archive.
#[derive(Clone, Copy)]
pub struct StrictRule<'call> {
    /// The name of the description, at the top or in the only directory.
    pub manifest: &'call str,
    /// A larger description is not asked, bytes.
    pub manifest_bytes_max: u64,
    /// From the contents of the description: the directory below which links are kept, relative to that of
    /// the description.
    pub links_below: &'call dyn Fn(&[u8]) -> Option<PathBuf>,
}

impl std::fmt::Debug for StrictRule<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StrictRule").field("manifest", &self.manifest).finish_non_exhaustive()
    }
}
