//! Why a patch cannot be made or graded.

use cofferdam_core::{NotStarted, SetupFailure};

/// Why a patch cannot be made or graded.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// The patch is longer than allowed.
    #[error("the patch is longer than {bytes_max} bytes (EVAL_PATCH_MAX)")]
    TooLarge {
        /// The limit, bytes.
        bytes_max: u64,
    },
    /// What the agent left keeps the comparison from ending, or a ready patch does not apply.
    #[error("{0}")]
    Rejected(String),
    /// The evaluation was cancelled meanwhile.
    #[error("cancelled")]
    Cancelled,
    /// A sandbox or a file system failed.
    #[error(transparent)]
    Sandbox(#[from] SetupFailure),
}

impl From<NotStarted> for PatchError {
    fn from(error: NotStarted) -> Self {
        Self::Sandbox(error.into_failure("exec git"))
    }
}
