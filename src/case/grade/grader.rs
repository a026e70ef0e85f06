//! The seam of grading.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::score::GraderScore;
use crate::case::cell::{CellExecutor, ExecError};

/// What graders get besides the Cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GradeInputs {
    /// The variables of provisioning; `None` removes one.
    pub env: BTreeMap<String, Option<String>>,
    /// The directory on the host with the hidden files: that of the Case, or of its fixtures.
    pub hidden: PathBuf,
}

/// Judges the files of a fresh Cell, which holds the source and the agent's difference.
///
/// A test that fails, a command that is out of time and a file that is missing are scores, not errors.
pub trait Grader: Send + Sync + fmt::Debug {
    /// Judges the files in `cell`. A grader with a gate of its own has two scores.
    ///
    /// # Errors
    /// Nothing could be judged.
    fn grade(
        &self,
        cell: &dyn CellExecutor,
        inputs: &GradeInputs,
    ) -> Result<Vec<GraderScore>, GradeError>;
}

/// Why nothing could be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GradeError {
    /// The executor failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// A hidden file cannot be read.
    #[error("hidden file {path:?}: {reason}")]
    Hidden {
        /// Its path in the directory of hidden files.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Two hidden files have destinations of which one lies in the other.
    #[error("inject: {path:?} is a file, and {below:?} lies in it")]
    Inject {
        /// The destination that is a file.
        path: String,
        /// The other.
        below: String,
    },
    /// A pattern is malformed.
    #[error("{key}[{index}]: not a pattern: {reason}")]
    Pattern {
        /// The key of the grader.
        key: &'static str,
        /// The index in its list.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The run was cancelled while the grader ran.
    #[error("cancelled")]
    Cancelled,
}
