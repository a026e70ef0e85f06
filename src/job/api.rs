//! The API of jobs, behind HTTP and the command line.

use std::fs::File;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::job::metrics::JobMetrics;
use cofferdam_core::job::{
    Artifact, Idempotency, JobError, JobId, JobLine, JobStatus, LiveJob, RunJobResult, Sha256,
    ValidRequest,
};
use cofferdam_core::values::deadline::Deadline;

/// The jobs of one store. `JobService` implements it; tests of the HTTP server script their own.
pub trait Jobs: Send + Sync {
    /// Accepts a job, or returns why not. A refused job leaves nothing behind.
    fn submit(
        &self,
        request: ValidRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Submitted, JobError>;
    /// The state of a job, and its result once it has ended.
    fn view(&self, id: &JobId) -> Result<JobView, JobError>;
    /// Lists jobs, the newest first.
    fn list(&self, asked: &JobQuery) -> Result<JobPage, JobError>;
    /// The artifacts of a job that has ended.
    fn artifacts(&self, id: &JobId) -> Result<Vec<Artifact>, JobError>;
    /// Opens one artifact for reading.
    fn open_artifact(&self, id: &JobId, path: &str) -> Result<OpenArtifact, JobError>;
    /// Cancels a job: a waiting one ends at once, a running one within a second.
    fn cancel(&self, id: &JobId) -> Result<Submitted, JobError>;
    /// Follows the output of a job.
    fn follow(&self, id: &JobId) -> Result<JobFeed, JobError>;
    /// The counters.
    fn metrics(&self) -> JobMetrics;
    /// Refuses new jobs from now on.
    fn start_draining(&self);
    /// Ends every live job; waiting ones end as interrupted.
    fn cancel_all(&self);
    /// Waits until no job is live; false if the deadline passed first.
    fn wait_idle(&self, deadline: Deadline) -> bool;
}

/// A job and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Submitted {
    /// Its id.
    pub job_id: JobId,
    /// Its state.
    pub status: JobStatus,
}

/// One job.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum JobView {
    /// A job that has not ended.
    Live(LiveJob),
    /// A job that has ended.
    Ended(Box<RunJobResult>),
}

/// Which jobs to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobQuery {
    /// Only jobs in this state.
    pub status: Option<JobStatus>,
    /// How many at most.
    pub limit: usize,
    /// The end of the page before.
    pub cursor: Option<String>,
}

/// A page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPage {
    /// The jobs, the newest first.
    pub jobs: Vec<JobLine>,
    /// The cursor of the next page; null at the end.
    pub next_cursor: Option<String>,
}

/// An artifact, open for reading.
#[derive(Debug)]
pub struct OpenArtifact {
    /// The file.
    pub file: File,
    /// Its size.
    pub bytes: u64,
    /// Its digest.
    pub sha256: Sha256,
}

/// A job's output so far, and its progress.
#[derive(Debug)]
pub struct JobFeed {
    /// The stored stdout, which grows.
    pub stdout: File,
    /// The stored stderr, which grows.
    pub stderr: File,
    /// The progress. The sender is dropped when the job has ended; the last value stays.
    pub progress: watch::Receiver<JobProgress>,
}

/// The progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobProgress {
    /// Its state.
    pub status: JobStatus,
    /// The bytes of stdout that can be read.
    pub stdout_bytes: u64,
    /// The bytes of stderr that can be read.
    pub stderr_bytes: u64,
}
