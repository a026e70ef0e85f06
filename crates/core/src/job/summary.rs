//! Summaries of jobs for lists, and idempotency keys.

use serde::{Deserialize, Serialize};

use super::command::Sha256;
use super::id::JobId;
use super::result::RunJobResult;
use super::status::JobStatus;

/// A job that has not finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveJob {
    /// Its id.
    pub job_id: JobId,
    /// Its state.
    pub status: JobStatus,
    /// When it was accepted, RFC 3339.
    pub queued_at: String,
    /// When a worker started it, RFC 3339.
    pub started_at: Option<String>,
}

/// One job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLine {
    /// Its id.
    pub job_id: JobId,
    /// Its state.
    pub status: JobStatus,
    /// When it was accepted, RFC 3339.
    pub queued_at: String,
    /// When a worker started it, RFC 3339.
    pub started_at: Option<String>,
    /// When it finished, RFC 3339.
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

/// What identifies a repeated request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idempotency {
    /// The client's key for the request.
    pub key: String,
    /// The digest of the request's body.
    pub body: Sha256,
}
