//! `/v1/jobs`: agents' jobs for HTTP clients.
//!
//! Whatever may wait for a disk is asked on threads of its own ([`ask`]), so that two threads go
//! on serving all connections.

mod byte_range;
mod file_pieces;

mod download;
mod events;
mod list_query;
mod offsets;
mod output_text;
mod submit;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::error::{Api, Refusal};
use super::request::body::BodyReading;
use super::request::percent;
use super::response;
use crate::job::Jobs;
use cofferdam_core::job::{Artifact, ErrorCode, JobError, JobId};
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};

/// Threads that ask the jobs on requests' behalf: they wait for disks, not for runs.
pub const ASKING_THREADS_MAX: usize = 16;
/// How long the store may take for anything.
const ASKED_WITHIN: Duration = Duration::from_secs(30);
/// Where jobs are.
const PREFIX: &str = "/v1/jobs/";

/// What the routes of jobs may use.
pub struct JobsFront {
    jobs: Arc<dyn Jobs>,
    /// The longest request, bytes.
    input_bytes_max: u64,
    /// How bodies are read.
    bodies: BodyReading,
    /// Between two signs of life on an event stream.
    ping_every: Duration,
    /// A place for each event stream there may be.
    streams: Arc<Semaphore>,
    /// A place for each artifact that may be sent at once.
    downloads: Arc<Semaphore>,
}

impl fmt::Debug for JobsFront {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { streams, downloads, .. } = self;
        let mut out = out.debug_struct("JobsFront");
        out.field("streams", streams).field("downloads", downloads).finish_non_exhaustive()
    }
}

/// How much the routes may ask of the front.
#[derive(Debug, Clone)]
pub struct JobsLimits {
    /// The longest request, bytes.
    pub input_bytes_max: u64,
    /// How bodies are read.
    pub bodies: BodyReading,
    /// Between two signs of life on an event stream.
    pub ping_every: Duration,
    /// Event streams there may be at once.
    pub event_streams_max: usize,
    /// Artifacts that may be sent at once.
    pub downloads_max: usize,
}

impl JobsFront {
    /// The front of `jobs`.
    pub fn new(jobs: Arc<dyn Jobs>, limits: JobsLimits) -> Self {
        Self {
            jobs,
            input_bytes_max: limits.input_bytes_max,
            bodies: limits.bodies,
            ping_every: limits.ping_every,
            streams: Arc::new(Semaphore::new(limits.event_streams_max)),
            downloads: Arc::new(Semaphore::new(limits.downloads_max)),
        }
    }

    /// Asks the jobs something, on a thread that may wait for it, in the name of this request.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Jobs) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (jobs, id) = (Arc::clone(&self.jobs), RequestId::current());
        let asked = spawn_blocking(move || on_behalf_of(id, || question(jobs.as_ref())));
        match timeout(ASKED_WITHIN, asked).await {
            Ok(Ok(answer)) => answer.map_err(Refusal::Job),
            Ok(Err(_)) => {
                log::error!("a thread that asked the jobs ended without an answer");
                Err(Refusal::Internal)
            }
            Err(_) => {
                let words = "the store does not answer in time";
                Err(JobError::new(ErrorCode::IoFailed, words).into())
            }
        }
    }
}

/// The routes.
pub fn routes<S>(front: Arc<JobsFront>) -> Router<S> {
    Router::new()
        .route("/v1/jobs", get(list).post(submit::submit))
        .route("/v1/jobs/{id}", get(view))
        .route("/v1/jobs/{id}/artifacts", get(artifacts))
        .route("/v1/jobs/{id}/artifacts/{*path}", get(download::download))
        .route("/v1/jobs/{id}/events", get(events::events))
        .route("/v1/jobs/{id}/cancel", post(cancel))
        .with_state(front)
}

async fn list(State(front): State<Arc<JobsFront>>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let listed = match list_query::parse(query) {
        Ok(asked) => front.ask(move |jobs| jobs.list(&asked).map(|page| ok(&page))).await,
        Err(error) => Err(error.into()),
    };
    answered(listed)
}

async fn view(State(front): State<Arc<JobsFront>>, request: Request) -> Response {
    let viewed = match job_id(request.uri()) {
        Ok(id) => front.ask(move |jobs| jobs.view(&id).map(|view| ok(&view))).await,
        Err(refusal) => Err(refusal),
    };
    answered(viewed)
}

async fn artifacts(State(front): State<Arc<JobsFront>>, request: Request) -> Response {
    #[derive(Serialize)]
    struct Listed {
        artifacts: Vec<Artifact>,
    }
    let listed = match job_id(request.uri()) {
        Ok(id) => {
            let list = move |jobs: &dyn Jobs| {
                jobs.artifacts(&id).map(|artifacts| ok(&Listed { artifacts }))
            };
            front.ask(list).await
        }
        Err(refusal) => Err(refusal),
    };
    answered(listed)
}

async fn cancel(State(front): State<Arc<JobsFront>>, request: Request) -> Response {
    let canceled = match job_id(request.uri()) {
        Ok(id) => front.ask(move |jobs| jobs.cancel(&id)).await,
        Err(refusal) => Err(refusal),
    };
    answered(canceled.map(|submitted| response::json(StatusCode::ACCEPTED, &submitted)))
}

/// The answer, or the refusal as jobs tell it.
fn answered(answer: Result<Response, Refusal>) -> Response {
    answer.unwrap_or_else(|refusal| refusal.answer(Api::Jobs))
}

fn ok(value: &impl Serialize) -> Response {
    response::json(StatusCode::OK, value)
}

/// The job that a path names; what is no name is nobody's.
fn job_id(uri: &Uri) -> Result<JobId, Refusal> {
    let behind = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let name = behind.split('/').next().and_then(percent::decode);
    let id = name.and_then(|name| JobId::parse(&name).ok());
    id.ok_or_else(|| JobError::not_found().into())
}

/// The artifact that a path names. Which there are is the service's to know.
fn artifact_path(uri: &Uri) -> Result<String, Refusal> {
    let behind = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let path = behind.split_once("/artifacts/").and_then(|(_, path)| percent::decode(path));
    path.ok_or_else(|| JobError::new(ErrorCode::JobNotFound, "no such artifact").into())
}

/// One of `places` at once.
fn place_of(places: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, Refusal> {
    let place = Arc::clone(places).try_acquire_owned();
    let words = || format!("as many {what} as there may be at once");
    place.map_err(|_| JobError::new(ErrorCode::QueueFull, words()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_job_and_an_artifact_of_it_to_the_byte() {
        for (path, id, artifact) in [
            ("/v1/jobs/job_1", Some("job_1"), None),
            ("/v1/jobs/%6Aob_1/cancel", Some("job_1"), None),
            ("/v1/jobs/a/artifacts/out/a.txt", Some("a"), Some("out/a.txt")),
            ("/v1/jobs/a/artifacts/b%20c/%C3%A9", Some("a"), Some("b c/é")),
            ("/v1/jobs/a/artifacts/x/artifacts/y", Some("a"), Some("x/artifacts/y")),
            ("/v1/jobs/a/artifacts/../../b", Some("a"), Some("../../b")),
            ("/v1/jobs/a/artifacts/%ff", Some("a"), None),
            ("/v1/jobs/.a", None, None),
            ("/v1/jobs/%2e%2e/artifacts/x", None, Some("x")),
            ("/v1/jobs/a%2Fb", None, None),
            ("/v1/jobs/a%00", None, None),
            ("/v1/jobs/%ff", None, None),
            ("/v1/jobs//artifacts/x", None, Some("x")),
        ] {
            let uri: Uri = path.parse().unwrap();
            let parsed = job_id(&uri).ok();
            assert_eq!(parsed.as_ref().map(JobId::as_str), id, "{path}");
            assert_eq!(artifact_path(&uri).ok().as_deref(), artifact, "{path}");
        }
    }
}
