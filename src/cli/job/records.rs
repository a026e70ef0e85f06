//! What is asked of jobs, wherever they are.

use std::io::Read;

use super::fault::Fault;
use crate::job::{JobPage, JobQuery, JobView, Submitted};
use cofferdam_core::job::{Artifact, ErrorCode, JobError, JobId, JobLine, RunJobResult};

/// The records of one store, or of one server.
pub trait Records {
    /// Where a job is; the result once there is one.
    fn view(&self, id: &JobId) -> Result<JobView, Fault>;
    /// The same in short.
    fn line(&self, id: &JobId) -> Result<JobLine, Fault>;
    /// Jobs, the newest first.
    fn list(&self, asked: &JobQuery) -> Result<JobPage, Fault>;
    /// What a job that is over has left.
    fn artifacts(&self, id: &JobId) -> Result<Vec<Artifact>, Fault>;
    /// One of these, to be read.
    fn open_artifact(&self, id: &JobId, artifact: &Artifact) -> Result<Box<dyn Read>, Fault>;
    /// Asks for a job's end.
    fn cancel(&self, id: &JobId) -> Result<Submitted, Fault>;

    /// What came of a job that is over.
    fn result(&self, id: &JobId) -> Result<RunJobResult, Fault> {
        match self.view(id)? {
            JobView::Ended(result) => Ok(*result),
            JobView::Live(live) => {
                let error = JobError::new(ErrorCode::JobConflict, "the job is not over yet");
                Err(error.with("status", live.status.word()).into())
            }
        }
    }
}
