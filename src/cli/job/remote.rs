//! The records of jobs on a server, over HTTP.

use std::io::Read;

use serde::Deserialize;
use serde_json::Value;

use super::failure::JobFailure;
use super::records::{ArtifactList, Records};
use crate::cli::remote::client::{ServerClient, escaped};
use crate::job::{JobPage, JobQuery, JobView, Submitted};
use cofferdam_core::job::{
    Artifact, ErrorCode, JobError, JobId, JobLine, JobStatus, LiveJob, RunJobRequest, RunJobResult,
};

/// The job records of one server.
#[derive(Debug, Clone)]
pub struct RemoteRecords {
    client: ServerClient,
}

/// The response to a submission or a cancellation.
#[derive(Debug, Deserialize)]
struct SubmittedJson {
    job_id: JobId,
    status: JobStatus,
}

impl From<SubmittedJson> for Submitted {
    fn from(SubmittedJson { job_id, status }: SubmittedJson) -> Self {
        Self { job_id, status }
    }
}

impl RemoteRecords {
    /// The records that `client` requests.
    pub fn new(client: ServerClient) -> Self {
        Self { client }
    }

    /// Submits a job; repeating the call with the same `key` is harmless.
    pub fn submit(&self, request: &RunJobRequest, key: &str) -> Result<Submitted, JobFailure> {
        let body = serde_json::to_vec(request).map_err(|error| unwritable(&error))?;
        Ok(self.client.post_once::<SubmittedJson>("/v1/jobs", &body, key)?.into())
    }

    /// The stream of a job's events after the event `last_id`.
    pub fn listen(
        &self,
        id: &JobId,
        last_id: Option<&str>,
    ) -> Result<Box<dyn Read + Send>, JobFailure> {
        Ok(self.client.listen(&format!("{}/events", path_of(id)), last_id)?)
    }
}

impl Records for RemoteRecords {
    fn view(&self, id: &JobId) -> Result<JobView, JobFailure> {
        let response: Value = self.client.get(&path_of(id))?;
        view_of(response).map_err(|error| {
            let words = format!("the server's response is not a job: {error}");
            JobError::new(ErrorCode::IoFailed, words).into()
        })
    }

    fn line(&self, id: &JobId) -> Result<JobLine, JobFailure> {
        Ok(match self.view(id)? {
            JobView::Live(LiveJob { job_id, status, queued_at, started_at }) => {
                JobLine { job_id, status, queued_at, started_at, finished_at: None }
            }
            JobView::Ended(result) => JobLine {
                job_id: result.job_id,
                status: result.status,
                queued_at: result.timing.queued_at,
                started_at: result.timing.started_at,
                finished_at: Some(result.timing.finished_at),
            },
        })
    }

    fn list(&self, asked: &JobQuery) -> Result<JobPage, JobFailure> {
        let JobQuery { status, limit, cursor } = asked;
        let mut path = format!("/v1/jobs?limit={limit}");
        if let Some(status) = status {
            path.push_str(&format!("&status={}", status.word()));
        }
        if let Some(cursor) = cursor {
            path.push_str(&format!("&cursor={}", escaped(cursor, b"")));
        }
        Ok(self.client.get(&path)?)
    }

    fn artifacts(&self, id: &JobId) -> Result<Vec<Artifact>, JobFailure> {
        let list: ArtifactList = self.client.get(&format!("{}/artifacts", path_of(id)))?;
        Ok(list.artifacts)
    }

    fn open_artifact(&self, id: &JobId, artifact: &Artifact) -> Result<Box<dyn Read>, JobFailure> {
        let path = escaped(&artifact.path, b"/");
        Ok(self.client.download(&format!("{}/artifacts/{path}", path_of(id)))?)
    }

    fn cancel(&self, id: &JobId) -> Result<Submitted, JobFailure> {
        Ok(self.client.post::<SubmittedJson>(&format!("{}/cancel", path_of(id)))?.into())
    }
}

/// The path of a job. An id needs no escaping.
fn path_of(id: &JobId) -> String {
    format!("/v1/jobs/{id}")
}

/// The response for a job, which is its result once the job has ended.
fn view_of(response: Value) -> Result<JobView, serde_json::Error> {
    let status: JobStatus = serde_json::from_value(response["status"].clone())?;
    if status.is_terminal() {
        let result: RunJobResult = serde_json::from_value(response)?;
        return Ok(JobView::Ended(Box::new(result)));
    }
    Ok(JobView::Live(serde_json::from_value(response)?))
}

fn unwritable(error: &serde_json::Error) -> JobFailure {
    JobError::new(ErrorCode::InvalidRequest, error.to_string()).into()
}
