//! Jobs as a store of this host knows them; whoever runs them may be another process.

use std::io::Read;
use std::path::Path;

use super::fault::Fault;
use super::records::Records;
use crate::job::{JobPage, JobQuery, JobView, Submitted};
use crate::store::{RunStore, StoreError};
use cofferdam_core::job::{Artifact, ErrorCode, JobError, JobId, JobLine, LiveJob};
use cofferdam_core::values::rel_path::RelPath;

/// A store that is looked into; only wishes for a job's end are written.
#[derive(Debug)]
pub struct Stored(RunStore);

impl Stored {
    /// The store in `directory`, which has to be one.
    pub fn open(directory: &Path) -> Result<Self, Fault> {
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

impl Records for Stored {
    fn view(&self, id: &JobId) -> Result<JobView, Fault> {
        if let Some(result) = self.0.result(id).map_err(with_path)? {
            return Ok(JobView::Ended(Box::new(result)));
        }
        let JobLine { job_id, status, queued_at, started_at, .. } = self.line(id)?;
        Ok(JobView::Live(LiveJob { job_id, status, queued_at, started_at }))
    }

    fn line(&self, id: &JobId) -> Result<JobLine, Fault> {
        let line = self.0.line(id).map_err(with_path)?;
        Ok(line.ok_or_else(JobError::not_found)?)
    }

    fn list(&self, asked: &JobQuery) -> Result<JobPage, Fault> {
        let JobQuery { status, limit, cursor } = asked;
        let listed = self.0.list(*status, *limit, cursor.as_deref());
        let (jobs, next_cursor) = listed.map_err(with_path)?;
        Ok(JobPage { jobs, next_cursor })
    }

    fn artifacts(&self, id: &JobId) -> Result<Vec<Artifact>, Fault> {
        Ok(self.result(id)?.artifacts)
    }

    fn open_artifact(&self, id: &JobId, artifact: &Artifact) -> Result<Box<dyn Read>, Fault> {
        let no_such = |_| JobError::new(ErrorCode::JobNotFound, "no such artifact");
        let path = RelPath::parse(&artifact.path).map_err(no_such)?;
        let file = self.0.open_artifact(id, &path).map_err(with_path)?;
        Ok(Box::new(file))
    }

    fn cancel(&self, id: &JobId) -> Result<Submitted, Fault> {
        let JobLine { job_id, status, .. } = self.line(id)?;
        if status.is_terminal() {
            let error = JobError::new(ErrorCode::JobConflict, "the job is over");
            return Err(error.with("status", status.word()).into());
        }
        self.0.request_cancel(id).map_err(with_path)?;
        Ok(Submitted { job_id, status })
    }
}
