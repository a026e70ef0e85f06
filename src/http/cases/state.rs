//! The state that the handlers of Cases share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::case::service::{CaseRuns, CaseRunsError};
use crate::http::error::{HttpApi, HttpError};
use crate::http::request::body::BodyReader;
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};

/// How long a call may take.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a submission may take: an archive is unpacked, and a source is read.
pub const SUBMIT_TIMEOUT: Duration = Duration::from_secs(120);
/// Submissions at once; more wait. The threads are shared with all other calls.
const SUBMISSIONS_MAX: usize = 4;

/// The state that the handlers of Cases share.
pub struct CasesState {
    cases: Arc<dyn CaseRuns>,
    /// The longest request, and the most bytes of files in it.
    pub input_bytes_max: u64,
    /// Reads request bodies.
    pub bodies: BodyReader,
    /// The interval between pings on an event stream.
    pub ping_every: Duration,
    /// One permit per event stream.
    pub streams: Arc<Semaphore>,
    /// One permit per document that is sent.
    pub downloads: Arc<Semaphore>,
    /// One permit per submission.
    pub submissions: Arc<Semaphore>,
}

/// Limits of the routes of Cases.
#[derive(Debug, Clone)]
pub struct CasesLimits {
    /// The longest request, bytes.
    pub input_bytes_max: u64,
    /// Reads request bodies.
    pub bodies: BodyReader,
    /// The interval between pings on an event stream.
    pub ping_every: Duration,
    /// Event streams at once.
    pub event_streams_max: usize,
    /// Documents that are sent at once.
    pub downloads_max: usize,
}

impl fmt::Debug for CasesState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { streams, downloads, .. } = self;
        let mut out = out.debug_struct("CasesState");
        out.field("streams", streams).field("downloads", downloads).finish_non_exhaustive()
    }
}

impl CasesState {
    /// Creates the state for `cases`.
    pub fn new(cases: Arc<dyn CaseRuns>, limits: CasesLimits) -> Self {
        Self {
            cases,
            input_bytes_max: limits.input_bytes_max,
            bodies: limits.bodies,
            ping_every: limits.ping_every,
            streams: Arc::new(Semaphore::new(limits.event_streams_max)),
            downloads: Arc::new(Semaphore::new(limits.downloads_max)),
            submissions: Arc::new(Semaphore::new(SUBMISSIONS_MAX)),
        }
    }

    /// Calls the service on a thread that may block, under the id of the current request.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn CaseRuns) -> Result<T, HttpError> + Send + 'static,
    ) -> Result<T, HttpError> {
        self.run_blocking_within(BLOCKING_TIMEOUT, call).await
    }

    /// As [`CasesState::run_blocking`], for at most so long.
    pub async fn run_blocking_within<T: Send + 'static>(
        &self,
        within: Duration,
        call: impl FnOnce(&dyn CaseRuns) -> Result<T, HttpError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let (cases, id) = (Arc::clone(&self.cases), RequestId::current());
        let running = spawn_blocking(move || on_behalf_of(id, || call(cases.as_ref())));
        match timeout(within, running).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                log::error!("a call's thread of Cases ended without an answer");
                Err(HttpError::Internal)
            }
            Err(_) => Err(CaseRunsError::Store("it did not answer in time".to_owned()).into()),
        }
    }
}

/// Returns the response, or the error in the shape of this API.
pub fn respond(answer: Result<Response, HttpError>) -> Response {
    answer.unwrap_or_else(|refusal| refusal.answer(HttpApi::Jobs))
}
