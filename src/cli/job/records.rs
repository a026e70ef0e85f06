//! The records of jobs, in a local store or on a server.

use std::io::Read;
use std::path::Path;

use super::failure::JobFailure;
use crate::job::{JobPage, JobQuery, JobView, Submitted};
use crate::store::{RunStore, StoreError};
use cofferdam_core::job::{Artifact, ErrorCode, JobError, JobId, JobLine, LiveJob, RunJobResult};
use cofferdam_core::values::rel_path::RelPath;
use serde::{Deserialize, Serialize};

/// The records of one store, or of one server.
pub trait Records {
    /// The status of a job; its result once it has ended.
    fn view(&self, id: &JobId) -> Result<JobView, JobFailure>;
    /// The summary of a job.
    fn line(&self, id: &JobId) -> Result<JobLine, JobFailure>;
    /// Jobs, newest first.
    fn list(&self, asked: &JobQuery) -> Result<JobPage, JobFailure>;
    /// The artifacts of a job that has ended.
    fn artifacts(&self, id: &JobId) -> Result<Vec<Artifact>, JobFailure>;
    /// Opens one artifact for reading.
    fn open_artifact(&self, id: &JobId, artifact: &Artifact) -> Result<Box<dyn Read>, JobFailure>;
    /// Requests the cancellation of a job.
    fn cancel(&self, id: &JobId) -> Result<Submitted, JobFailure>;

    /// The result of a job that has ended.
    fn result(&self, id: &JobId) -> Result<RunJobResult, JobFailure> {
        match self.view(id)? {
            JobView::Ended(result) => Ok(*result),
            JobView::Live(live) => {
                let error = JobError::new(ErrorCode::JobConflict, "the job is not over yet");
                Err(error.with("status", live.status.word()).into())
            }
        }
    }
}

/// The artifacts of one job as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct ArtifactList {
    pub artifacts: Vec<Artifact>,
}

/// The records of a store on this host. Another process may run the jobs. Writes only requests for
/// cancellation.
#[derive(Debug)]
pub struct StoreRecords(RunStore);

impl StoreRecords {
    /// Opens the existing store in `directory`.
    pub fn open(directory: &Path) -> Result<Self, JobFailure> {
        let store = RunStore::open_existing(directory).map_err(with_path)?;
        Ok(Self(store))
    }
}

/// The error with its path, which may be shown because the store belongs to the caller.
pub fn with_path(error: StoreError) -> JobError {
    let words = error.to_string();
    let public = JobError::from(error);
    match public.code {
        ErrorCode::IoFailed => JobError { message: words, ..public },
        _ => public,
    }
}

impl Records for StoreRecords {
    fn view(&self, id: &JobId) -> Result<JobView, JobFailure> {
        if let Some(result) = self.0.result(id).map_err(with_path)? {
            return Ok(JobView::Ended(Box::new(result)));
        }
        let JobLine { job_id, status, queued_at, started_at, .. } = self.line(id)?;
        Ok(JobView::Live(LiveJob { job_id, status, queued_at, started_at }))
    }

    fn line(&self, id: &JobId) -> Result<JobLine, JobFailure> {
        let line = self.0.line(id).map_err(with_path)?;
        Ok(line.ok_or_else(JobError::not_found)?)
    }

    fn list(&self, asked: &JobQuery) -> Result<JobPage, JobFailure> {
        let JobQuery { status, limit, cursor } = asked;
        let listed = self.0.list(*status, *limit, cursor.as_deref());
        let (jobs, next_cursor) = listed.map_err(with_path)?;
        Ok(JobPage { jobs, next_cursor })
    }

    fn artifacts(&self, id: &JobId) -> Result<Vec<Artifact>, JobFailure> {
        Ok(self.result(id)?.artifacts)
    }

    fn open_artifact(&self, id: &JobId, artifact: &Artifact) -> Result<Box<dyn Read>, JobFailure> {
        let no_such = |_| JobError::new(ErrorCode::JobNotFound, "no such artifact");
        let path = RelPath::parse(&artifact.path).map_err(no_such)?;
        let file = self.0.open_artifact(id, &path).map_err(with_path)?;
        Ok(Box::new(file))
    }

    fn cancel(&self, id: &JobId) -> Result<Submitted, JobFailure> {
        let JobLine { job_id, status, .. } = self.line(id)?;
        if status.is_terminal() {
            let error = JobError::new(ErrorCode::JobConflict, "the job is over");
            return Err(error.with("status", status.word()).into());
        }
        self.0.request_cancel(id).map_err(with_path)?;
        Ok(Submitted { job_id, status })
    }
}
