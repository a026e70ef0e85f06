//! The state that the job handlers share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::http::error::{HttpApi, HttpError};
use crate::http::request::body::BodyReader;
use crate::job::Jobs;
use cofferdam_core::job::{ErrorCode, JobError};
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};

/// Threads for calls to the job service. They wait for disks, not for runs.
pub const BLOCKING_THREADS_MAX: usize = 16;
/// How long a call may take.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(30);

/// The state that the job handlers share.
pub struct JobsState {
    jobs: Arc<dyn Jobs>,
    /// The maximum size of a request in bytes.
    pub input_bytes_max: u64,
    /// Reads request bodies.
    pub bodies: BodyReader,
    /// The interval between pings on an event stream.
    pub ping_every: Duration,
    /// One permit per event stream.
    pub streams: Arc<Semaphore>,
    /// One permit per download.
    pub downloads: Arc<Semaphore>,
}

impl fmt::Debug for JobsState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { streams, downloads, .. } = self;
        let mut out = out.debug_struct("JobsState");
        out.field("streams", streams).field("downloads", downloads).finish_non_exhaustive()
    }
}

/// Limits of the job routes.
#[derive(Debug, Clone)]
pub struct JobsLimits {
    /// The maximum size of a request in bytes.
    pub input_bytes_max: u64,
    /// Reads request bodies.
    pub bodies: BodyReader,
    /// The interval between pings on an event stream.
    pub ping_every: Duration,
    /// Event streams at once.
    pub event_streams_max: usize,
    /// Downloads at once.
    pub downloads_max: usize,
}

impl JobsState {
    /// Creates the state for `jobs`.
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

    /// Calls the job service on a thread that may block, under the id of the current request.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Jobs) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let (jobs, id) = (Arc::clone(&self.jobs), RequestId::current());
        let running = spawn_blocking(move || on_behalf_of(id, || call(jobs.as_ref())));
        match timeout(BLOCKING_TIMEOUT, running).await {
            Ok(Ok(answer)) => answer.map_err(HttpError::Job),
            Ok(Err(_)) => {
                log::error!("a job call's thread ended without an answer");
                Err(HttpError::Internal)
            }
            Err(_) => {
                let words = "the job store did not answer in time";
                Err(JobError::new(ErrorCode::IoFailed, words).into())
            }
        }
    }
}

/// Returns the response, or the error in the shape of the jobs API.
pub fn respond(answer: Result<Response, HttpError>) -> Response {
    answer.unwrap_or_else(|refusal| refusal.answer(HttpApi::Jobs))
}

/// Takes one of `permits`, or refuses the request.
pub fn acquire(permits: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, HttpError> {
    let permit = Arc::clone(permits).try_acquire_owned();
    let words = || format!("as many {what} as there may be at once");
    permit.map_err(|_| JobError::new(ErrorCode::QueueFull, words()).into())
}
