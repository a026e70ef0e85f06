//! Jobs of a service, over HTTP.

use std::io::Read;

use serde::Deserialize;
use serde_json::Value;

use super::client::{Client, escaped};
use super::fault::Fault;
use super::records::Records;
use crate::job::{JobPage, JobQuery, JobView, Submitted};
use cofferdam_core::job::{
    Artifact, ErrorCode, JobError, JobId, JobLine, JobStatus, LiveJob, RunJobRequest, RunJobResult,
};

/// The jobs that one server has.
#[derive(Debug, Clone)]
pub struct Remote {
    client: Client,
}

/// What a job that was taken, or is to end, is answered with.
#[derive(Debug, Deserialize)]
struct Told {
    job_id: JobId,
    status: JobStatus,
}

#[derive(Debug, Deserialize)]
struct ArtifactList {
    artifacts: Vec<Artifact>,
}

impl From<Told> for Submitted {
    fn from(Told { job_id, status }: Told) -> Self {
        Self { job_id, status }
    }
}

impl Remote {
    /// Those that `client` asks for.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Hands a job in; the same `key` makes a second time harmless.
    pub fn submit(&self, request: &RunJobRequest, key: &str) -> Result<Submitted, Fault> {
        let body = serde_json::to_vec(request).map_err(|error| unwritable(&error))?;
        Ok(self.client.post_once::<Told>("/v1/jobs", &body, key)?.into())
    }

    /// What a job writes and becomes, after the event `last_id`.
    pub fn listen(&self, id: &JobId, last_id: Option<&str>) -> Result<Box<dyn Read + Send>, Fault> {
        self.client.listen(&format!("{}/events", path_of(id)), last_id)
    }
}

impl Records for Remote {
    fn view(&self, id: &JobId) -> Result<JobView, Fault> {
        let told: Value = self.client.get(&path_of(id))?;
        view_of(told).map_err(|error| {
            let words = format!("the server's answer is no job's: {error}");
            JobError::new(ErrorCode::IoFailed, words).into()
        })
    }

    fn line(&self, id: &JobId) -> Result<JobLine, Fault> {
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

    fn list(&self, asked: &JobQuery) -> Result<JobPage, Fault> {
        let JobQuery { status, limit, cursor } = asked;
        let mut path = format!("/v1/jobs?limit={limit}");
        if let Some(status) = status {
            path.push_str(&format!("&status={}", status.word()));
        }
        if let Some(cursor) = cursor {
            path.push_str(&format!("&cursor={}", escaped(cursor, b"")));
        }
        self.client.get(&path)
    }

    fn artifacts(&self, id: &JobId) -> Result<Vec<Artifact>, Fault> {
        let list: ArtifactList = self.client.get(&format!("{}/artifacts", path_of(id)))?;
        Ok(list.artifacts)
    }

    fn open_artifact(&self, id: &JobId, artifact: &Artifact) -> Result<Box<dyn Read>, Fault> {
        let path = escaped(&artifact.path, b"/");
        Ok(self.client.download(&format!("{}/artifacts/{path}", path_of(id)))?)
    }

    fn cancel(&self, id: &JobId) -> Result<Submitted, Fault> {
        Ok(self.client.post::<Told>(&format!("{}/cancel", path_of(id)))?.into())
    }
}

/// A name needs no escape.
fn path_of(id: &JobId) -> String {
    format!("/v1/jobs/{id}")
}

/// A job that is over is told as its result.
fn view_of(told: Value) -> Result<JobView, serde_json::Error> {
    let status: JobStatus = serde_json::from_value(told["status"].clone())?;
    if status.is_terminal() {
        let result: RunJobResult = serde_json::from_value(told)?;
        return Ok(JobView::Ended(Box::new(result)));
    }
    Ok(JobView::Live(serde_json::from_value(told)?))
}

fn unwritable(error: &serde_json::Error) -> Fault {
    JobError::new(ErrorCode::InvalidRequest, error.to_string()).into()
}
