//! Jobs over the files of a Cell, by the runner of all jobs.
//!
//! The whole sandbox is copied into the workspace of the job and, at its end, back: a job has a file system of its own.
//! What the runner records is removed with the job.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use uuid::Uuid;

use super::ended::{ended, not_run};
use super::harness::InlineJobs;
use super::request::InlineJob;
use crate::case::cell::{CellExecutor, ExecError};
use crate::case::harness::call::HarnessCall;
use crate::case::harness::end::{HarnessEnd, HarnessError, millis_since};
use crate::case::source::left_out::SOURCE_LIMITS;
use crate::executor::Executor;
use crate::job::{JobControl, JobTree, Runner};
use cofferdam_core::job::{JobStatus, RunJobResult};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::{Owner, StopCheck, copy_selected, remove_tree};

/// How long the tree of a job may take to be copied back.
const COPY_TIMEOUT: Duration = Duration::from_mins(15);
/// The mode of the directory with records.
const MODE: u32 = 0o700;

/// Runs jobs over the files of Cells in sandboxes of this host.
#[derive(Debug, Clone)]
pub struct CellJobs {
    executor: Arc<dyn Executor>,
    scratch: PathBuf,
}

/// Where a job has its record. It is removed when this is dropped.
#[derive(Debug)]
struct JobRecords {
    parent: File,
    name: OsString,
    path: PathBuf,
}

impl CellJobs {
    /// Jobs in the sandboxes of `executor`. `scratch` is a directory that others cannot read and that no sandbox
    /// shows.
    pub fn new(executor: Arc<dyn Executor>, scratch: impl Into<PathBuf>) -> Self {
        Self { executor, scratch: scratch.into() }
    }

    fn runner(&self, job: &InlineJob, records: &Path) -> Result<Runner, HarnessError> {
        let builder = Runner::builder(records)
            .local(Arc::clone(&self.executor))
            .network(job.network().clone())
            .service_egress(job.service().clone());
        builder.build().map_err(|error| HarnessError::failed(format!("the job: {error}")))
    }
}

impl InlineJobs for CellJobs {
    fn run(
        &self,
        job: &InlineJob,
        cell: &dyn CellExecutor,
        call: &HarnessCall<'_>,
    ) -> Result<HarnessEnd, HarnessError> {
        let started = Instant::now();
        let records = JobRecords::make(&self.scratch)?;
        let runner = self.runner(job, &records.path)?;
        let request = job.within(call.deadline.remaining())?;
        let sandbox = cell.open_sandbox()?;
        let taken = RefCell::new(None);
        let take = |left: BorrowedFd<'_>| drop(taken.replace(Some(put_back(left, cell, call))));
        let tree = JobTree { directory: sandbox.as_fd(), take: &take };
        let control = JobControl::over(call.cancel.clone());
        let ran = runner.run_over(request, &control, tree);
        drop(sandbox);
        let result = ran.map_err(|error| not_run(Some(&error)))?;
        trace(&result, call);
        let end = ended(&result, millis_since(started))?;
        match taken.into_inner() {
            Some(Ok(())) => Ok(end),
            Some(Err(error)) => Err(error.into()),
            // It has not begun.
            None if result.status == JobStatus::Canceled => Ok(end),
            None => Err(HarnessError::failed("the job left no tree: its processes do not die")),
        }
    }
}

/// Puts what a job left in the place of the sandbox.
fn put_back(
    left: BorrowedFd<'_>,
    cell: &dyn CellExecutor,
    call: &HarnessCall<'_>,
) -> Result<(), ExecError> {
    let deadline = Deadline::after(COPY_TIMEOUT);
    let is_over = || deadline.passed() || call.is_cancelled();
    let mut fill = |into: BorrowedFd<'_>, owner: Owner| {
        let stop = StopCheck(&is_over);
        copy_selected(left, into, owner, &SOURCE_LIMITS, &|_: &[u8]| false, stop)
            .map(drop)
            .map_err(|error| ExecError::failed("copy the tree of the job", error))
    };
    cell.replace_sandbox(&mut fill)
}

/// Notes how the job ended. Its output is the agent's.
fn trace(result: &RunJobResult, call: &HarnessCall<'_>) {
    call.trace.write(&json!({
        "event": "job",
        "status": result.status,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "usage": result.usage,
        "egress": result.egress,
        "error": result.error,
    }));
}

impl JobRecords {
    fn make(scratch: &Path) -> Result<Self, HarnessError> {
        let name = OsString::from(format!("cofferdam-job-{}", Uuid::new_v4().simple()));
        let path = scratch.join(&name);
        let made = File::open(scratch).and_then(|parent| {
            DirBuilder::new().mode(MODE).create(&path)?;
            Ok(parent)
        });
        let failed = |error| HarnessError::failed(format!("the record of the job: {error}"));
        Ok(Self { parent: made.map_err(failed)?, name, path })
    }
}

impl Drop for JobRecords {
    fn drop(&mut self) {
        match remove_tree(self.parent.as_fd(), &self.name) {
            Ok(removal) if removal.left == 0 => {}
            Ok(removal) => log::error!("{} entries of the record of a job are left", removal.left),
            Err(error) => log::error!("remove the record of a job: {error}"),
        }
    }
}
