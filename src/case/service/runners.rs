//! What a run of the service is run by.

use std::path::Path;

use crate::case::cell::CellExecutorKind;
use crate::case::file::CheckedCase;
use crate::case::harness::CaseDenial;
use crate::case::run::CellRunner;
use cofferdam_core::sync::cancel::CancelToken;

/// A run whose Cells are about to be run.
#[derive(Debug, Clone, Copy)]
pub struct RunnerRequest<'a> {
    /// The Case.
    pub checked: &'a CheckedCase,
    /// Its file, with every link followed.
    pub case_path: &'a Path,
    /// The executor of its Cells; never the local one.
    pub executor: CellExecutorKind,
    /// The name of the token whose run it is.
    pub owner: &'a str,
}

/// Makes runners of Cells.
pub trait CaseRunners: Send + Sync {
    /// What the Case may not use besides what every Case by HTTP may not: secrets of the service.
    fn denials(&self, request: &RunnerRequest<'_>) -> Vec<CaseDenial>;

    /// The digest of all that the Cells read besides the case file.
    ///
    /// # Errors
    /// What cannot be read, in words.
    fn source_digest(
        &self,
        request: &RunnerRequest<'_>,
        cancel: &CancelToken,
    ) -> Result<String, String>;

    /// The runner of one run. What all its Cells share is prepared once, by the first that needs it, and is gone when
    /// the runner is dropped.
    ///
    /// # Errors
    /// Why this host runs no Cell, in words: every Cell fails with `backend.unavailable`.
    fn cell_runner(&self, request: &RunnerRequest<'_>) -> Result<Box<dyn CellRunner>, String>;
}
