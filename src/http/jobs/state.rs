//! What the handlers of jobs share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::http::error::{ApiError, HttpApi};
use crate::http::request::body::BodyReader;
use crate::job::Jobs;
use cofferdam_core::job::{ErrorCode, JobError};
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};

/// Threads that run_blocking the jobs on requests' behalf: they wait for disks, not for runs.
pub const BLOCKING_THREADS_MAX: usize = 16;
/// How long the store may take for anything.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(30);

/// What the routes of jobs may use.
pub struct JobsState {
    jobs: Arc<dyn Jobs>,
    /// The longest request, bytes.
    pub input_bytes_max: u64,
    /// How bodies are read.
    pub bodies: BodyReader,
    /// Between two signs of life on an event stream.
    pub ping_every: Duration,
    /// A place for each event stream there may be.
    pub streams: Arc<Semaphore>,
    /// A place for each artifact that may be sent at once.
    pub downloads: Arc<Semaphore>,
}

impl fmt::Debug for JobsState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { streams, downloads, .. } = self;
        let mut out = out.debug_struct("JobsState");
        out.field("streams", streams).field("downloads", downloads).finish_non_exhaustive()
    }
}

/// How much the routes may run_blocking of the front.
#[derive(Debug, Clone)]
pub struct JobsLimits {
    /// The longest request, bytes.
    pub input_bytes_max: u64,
    /// How bodies are read.
    pub bodies: BodyReader,
    /// Between two signs of life on an event stream.
    pub ping_every: Duration,
    /// Event streams there may be at once.
    pub event_streams_max: usize,
    /// Artifacts that may be sent at once.
    pub downloads_max: usize,
}

impl JobsState {
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
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Jobs) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (jobs, id) = (Arc::clone(&self.jobs), RequestId::current());
        let asked = spawn_blocking(move || on_behalf_of(id, || question(jobs.as_ref())));
        match timeout(BLOCKING_TIMEOUT, asked).await {
            Ok(Ok(answer)) => answer.map_err(ApiError::Job),
            Ok(Err(_)) => {
                log::error!("a thread that asked the jobs ended without an answer");
                Err(ApiError::Internal)
            }
            Err(_) => {
                let words = "the store does not answer in time";
                Err(JobError::new(ErrorCode::IoFailed, words).into())
            }
        }
    }
}

/// The answer, or the refusal as jobs tell it.
pub fn respond(answer: Result<Response, ApiError>) -> Response {
    answer.unwrap_or_else(|refusal| refusal.answer(HttpApi::Jobs))
}

/// One of `places` at once.
pub fn acquire(places: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, ApiError> {
    let place = Arc::clone(places).try_acquire_owned();
    let words = || format!("as many {what} as there may be at once");
    place.map_err(|_| JobError::new(ErrorCode::QueueFull, words()).into())
}
