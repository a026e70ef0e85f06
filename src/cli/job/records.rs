//! What is asked of jobs, wherever they are.

use std::io::Read;
use std::path::Path;

use super::failure::JobFailure;
use crate::job::{JobPage, JobView, ListAsked, Submitted};
use crate::store::{RunStore, StoreError};
use cofferdam_core::job::{Artifact, ErrorCode, JobError, JobId, JobLine, LiveJob, RunJobResult};
use cofferdam_core::values::rel_path::RelPath;
use serde::{Deserialize, Serialize};

/// The records of one store, or of one server.
pub trait Records {
    /// Where a job is; the result once there is one.
    fn view(&self, id: &JobId) -> Result<JobView, JobFailure>;
    /// The same in short.
    fn line(&self, id: &JobId) -> Result<JobLine, JobFailure>;
    /// Jobs, the newest first.
    fn list(&self, asked: &ListAsked) -> Result<JobPage, JobFailure>;
    /// What a job that is over has left.
    fn artifacts(&self, id: &JobId) -> Result<Vec<Artifact>, JobFailure>;
    /// One of these, to be read.
    fn open_artifact(&self, id: &JobId, artifact: &Artifact) -> Result<Box<dyn Read>, JobFailure>;
    /// Asks for a job's end.
    fn cancel(&self, id: &JobId) -> Result<Submitted, JobFailure>;

    /// What came of a job that is over.
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

/// A store that is looked into; only wishes for a job's end are written.
#[derive(Debug)]
pub struct StoreRecords(RunStore);

impl StoreRecords {
    /// The store in `directory`, which has to be one.
    pub fn open(directory: &Path) -> Result<Self, JobFailure> {
        let store = RunStore::open_existing(directory).map_err(with_path)?;
        Ok(Self(store))
    }
}

/// The error as it is: the store is the caller's own.
pub fn with_path(error: StoreError) -> JobError {
    let words = error.to_string();
    let told = JobError::from(error);
    match told.code {
        ErrorCode::IoFailed => JobError { message: words, ..told },
        _ => told,
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

    fn list(&self, asked: &ListAsked) -> Result<JobPage, JobFailure> {
        let ListAsked { status, limit, cursor } = asked;
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
