//! What every door asks of the jobs, and what it is told.

use std::fs::File;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::job::metrics::JobMetrics;
use cofferdam_core::job::{
    Artifact, Idempotency, JobError, JobId, JobLine, JobStatus, LiveJob, RunJobRequest,
    RunJobResult, Sha256,
};
use cofferdam_core::values::deadline::Deadline;

/// The jobs of one store, as a door sees them. The one implementation that runs anything is
/// `JobService`; a front's tests script their own.
pub trait Jobs: Send + Sync {
    /// Takes a job, or says why not; a job that is not taken leaves nothing behind.
    fn submit(
        &self,
        request: RunJobRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Submitted, JobError>;
    /// Where a job is; the result once there is one.
    fn view(&self, id: &JobId) -> Result<JobView, JobError>;
    /// Jobs, the newest first.
    fn list(&self, asked: &JobQuery) -> Result<JobPage, JobError>;
    /// What a job that is over has left.
    fn artifacts(&self, id: &JobId) -> Result<Vec<Artifact>, JobError>;
    /// One of these, to be read.
    fn open_artifact(&self, id: &JobId, path: &str) -> Result<OpenArtifact, JobError>;
    /// Asks for a job's end: one that queued is over at once, one that runs within a second.
    fn cancel(&self, id: &JobId) -> Result<Submitted, JobError>;
    /// What a job writes, while it does.
    fn follow(&self, id: &JobId) -> Result<JobFeed, JobError>;
    /// What was counted so far, and what there is now.
    fn figures(&self) -> JobMetrics;
    /// Takes no new jobs from now on.
    fn start_draining(&self);
    /// Ends every live job; what queued is finished as interrupted.
    fn cancel_all(&self);
    /// Waits until no job is running; false when the deadline came first.
    fn wait_idle(&self, deadline: Deadline) -> bool;
}

/// A job and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Submitted {
    /// Its name.
    pub job_id: JobId,
    /// Where it is.
    pub status: JobStatus,
}

/// What is told of one job.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum JobView {
    /// It is not over.
    Live(LiveJob),
    /// It is.
    Ended(Box<RunJobResult>),
}

/// Which jobs to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobQuery {
    /// Only those in this state.
    pub status: Option<JobStatus>,
    /// How many at most.
    pub limit: usize,
    /// After those of an earlier page.
    pub cursor: Option<String>,
}

/// A part of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPage {
    /// The newest first.
    pub jobs: Vec<JobLine>,
    /// What asks for the next part; null at the end.
    pub next_cursor: Option<String>,
}

/// An artifact, open for reading.
#[derive(Debug)]
pub struct OpenArtifact {
    /// Its bytes.
    pub file: File,
    /// How many.
    pub bytes: u64,
    /// Of them.
    pub sha256: Sha256,
}

/// A job's output as far as it has come, and word of more.
#[derive(Debug)]
pub struct JobFeed {
    /// What is kept of stdout, growing.
    pub stdout: File,
    /// What is kept of stderr, growing.
    pub stderr: File,
    /// How far it is. Its sender goes away when the job is over, whose last word stays.
    pub progress: watch::Receiver<JobProgress>,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobProgress {
    /// Where it is.
    pub status: JobStatus,
    /// How much of stdout can be read.
    pub stdout_bytes: u64,
    /// How much of stderr can be read.
    pub stderr_bytes: u64,
}
