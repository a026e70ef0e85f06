//! What is told of a job in a line.

use serde::{Deserialize, Serialize};

use super::command::Sha256;
use super::id::JobId;
use super::result::RunJobResult;
use super::status::JobStatus;

/// A job that is not over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveJob {
    /// Its name.
    pub job_id: JobId,
    /// Where it is.
    pub status: JobStatus,
    /// When it was taken, RFC 3339.
    pub queued_at: String,
    /// When a worker began, RFC 3339.
    pub started_at: Option<String>,
}

/// One job of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLine {
    /// Its name.
    pub job_id: JobId,
    /// Where it is.
    pub status: JobStatus,
    /// When it was taken, RFC 3339.
    pub queued_at: String,
    /// When a worker began, RFC 3339.
    pub started_at: Option<String>,
    /// When it was over, RFC 3339.
    pub finished_at: Option<String>,
}

impl From<&RunJobResult> for JobLine {
    fn from(result: &RunJobResult) -> Self {
        Self {
            job_id: result.job_id.clone(),
            status: result.status,
            queued_at: result.timing.queued_at.clone(),
            started_at: result.timing.started_at.clone(),
            finished_at: Some(result.timing.finished_at.clone()),
        }
    }
}

/// What makes two requests one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idempotency {
    /// The client's own name for the request.
    pub key: String,
    /// Of the body it came with.
    pub body: Sha256,
}
