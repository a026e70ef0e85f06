//! How large the directory of a Case may be, and why there is no copy of it.

use std::io;
use std::path::{Path, PathBuf};

/// How large the directory of a Case may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaseDirLimits {
    /// Files, directories and links.
    pub entries_max: usize,
    /// Bytes of the files that are copied.
    pub bytes_max: u64,
}

impl Default for CaseDirLimits {
    fn default() -> Self {
        Self { entries_max: 100_000, bytes_max: 1 << 30 }
    }
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CaseDirError {
    /// A file cannot be read or written.
    #[error("the directory of the Case: {path}: {source}", path = .path.display())]
    File {
        /// Below the directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// There are too many entries.
    #[error("the directory of the Case has more than {entries_max} entries")]
    TooMany {
        /// What is allowed.
        entries_max: usize,
    },
    /// The files are too large.
    #[error("the directory of the Case has more than {bytes_max} bytes")]
    TooLarge {
        /// What is allowed.
        bytes_max: u64,
    },
    /// It was stopped.
    #[error("the copy of the directory of the Case took too long, or was cancelled")]
    Stopped,
}

impl CaseDirError {
    pub(super) fn of(path: &Path, error: impl Into<io::Error>) -> Self {
        Self::File { path: path.to_owned(), source: error.into() }
    }
}
