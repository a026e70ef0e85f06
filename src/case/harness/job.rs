//! The harness of kind `job`: a request of agent jobs over the tree of the Cell.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::call::{Harness, HarnessCall};
use super::end::{HarnessEnd, HarnessError};
use crate::case::cell::CellExecutor;

/// Runs jobs over the files of one Cell. Jobs lie above Cases, so the caller of a harness gives it.
pub trait InlineJobs: Send + Sync + fmt::Debug {
    /// Runs `request`, which has every key of a job but `workspace`, over a copy of the sandbox of `cell`. The tree at
    /// its end replaces the sandbox, also if the job fails or is late.
    ///
    /// # Errors
    /// The job could not be run: its status is `setup_failed`, `policy_denied` or `backend_unavailable`.
    fn run(
        &self,
        request: &Value,
        cell: &dyn CellExecutor,
        call: &HarnessCall<'_>,
    ) -> Result<HarnessEnd, HarnessError>;
}

/// Lets a job work.
#[derive(Debug, Clone)]
pub struct JobHarness {
    /// The request, as the Case has it.
    pub request: Value,
    /// What runs it, if anything here does.
    pub jobs: Option<Arc<dyn InlineJobs>>,
}

impl Harness for JobHarness {
    fn work(
        &self,
        cell: &dyn CellExecutor,
        call: &HarnessCall<'_>,
    ) -> Result<HarnessEnd, HarnessError> {
        match &self.jobs {
            Some(jobs) => jobs.run(&self.request, cell, call),
            None => Err(HarnessError::failed("jobs cannot be run in this Cell")),
        }
    }
}
