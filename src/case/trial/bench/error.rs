//! Why a trial of a user of the library has no result.

use std::path::PathBuf;

use crate::case::file::CaseFaults;
use crate::case::run::{CaseRunError, PlanError};
use cofferdam_core::SetupFailure;

/// Why there is no bench, or no result of a trial.
#[derive(Debug, thiserror::Error)]
pub enum TrialBenchError {
    /// The Case cannot be run. Each error names its key.
    #[error("the Case has {} errors, the first: {}", .0.errors.len(), first_of(.0))]
    Case(CaseFaults),
    /// A file of the caller's cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        source: std::io::Error,
    },
    /// One of the given variables is wrong.
    #[error("{0}")]
    Variables(String),
    /// What the Case reads besides its file cannot be read.
    #[error("{0}")]
    Inputs(String),
    /// This host cannot have Cells.
    #[error(transparent)]
    Host(#[from] SetupFailure),
    /// There is no such trial.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The run cannot be written.
    #[error(transparent)]
    Run(#[from] CaseRunError),
}

fn first_of(faults: &CaseFaults) -> String {
    faults.errors.first().map_or_else(String::new, |error| match error.path.as_str() {
        "" => error.message.clone(),
        path => format!("{path}: {}", error.message),
    })
}
