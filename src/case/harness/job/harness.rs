//! The harness, and what runs its job.

use std::fmt;
use std::sync::Arc;

use super::request::InlineJob;
use crate::case::cell::CellExecutor;
use crate::case::harness::call::{Harness, HarnessCall};
use crate::case::harness::end::{HarnessEnd, HarnessError};

/// Runs jobs over the files of one Cell.
pub trait InlineJobs: Send + Sync + fmt::Debug {
    /// Runs `job` over a copy of the sandbox of `cell`. The tree at its end replaces the sandbox, also if the job fails or
    /// is late.
    ///
    /// # Errors
    /// The job could not be run: its status is `setup_failed`, `policy_denied` or `backend_unavailable`.
    fn run(
        &self,
        job: &InlineJob,
        cell: &dyn CellExecutor,
        call: &HarnessCall<'_>,
    ) -> Result<HarnessEnd, HarnessError>;
}

/// Lets a job work.
#[derive(Debug, Clone)]
pub struct JobHarness {
    /// The job.
    pub job: InlineJob,
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
            Some(jobs) => jobs.run(&self.job, cell, call),
            None => Err(HarnessError::failed("jobs cannot be run in this Cell")),
        }
    }
}
