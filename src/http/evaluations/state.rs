//! The state that the handlers of evaluations share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::settings::EvaluationHttpSettings;
use crate::evaluation::service::{Evaluations, EvaluationsError};
use crate::http::error::{HttpApi, HttpError};
use crate::http::request::body::BodyReader;
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};

/// How long a call may take.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(30);

/// The state that the handlers of evaluations share.
pub struct EvaluationsState {
    evaluations: Arc<dyn Evaluations>,
    /// What is accepted.
    pub settings: Arc<EvaluationHttpSettings>,
    /// Reads request bodies.
    pub bodies: BodyReader,
    /// The interval between pings on an event stream.
    pub ping_every: Duration,
    /// One permit per event stream.
    pub streams: Arc<Semaphore>,
}

impl fmt::Debug for EvaluationsState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, streams, .. } = self;
        let mut out = out.debug_struct("EvaluationsState");
        out.field("settings", settings).field("streams", streams).finish_non_exhaustive()
    }
}

impl EvaluationsState {
    /// Creates the state for `evaluations`.
    pub fn new(
        evaluations: Arc<dyn Evaluations>,
        settings: EvaluationHttpSettings,
        bodies: BodyReader,
        ping_every: Duration,
        event_streams_max: usize,
    ) -> Self {
        let streams = Arc::new(Semaphore::new(event_streams_max));
        Self { evaluations, settings: Arc::new(settings), bodies, ping_every, streams }
    }

    /// Calls the service on a thread that may block, under the id of the current request.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Evaluations) -> Result<T, EvaluationsError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let (evaluations, id) = (Arc::clone(&self.evaluations), RequestId::current());
        let running = spawn_blocking(move || on_behalf_of(id, || call(evaluations.as_ref())));
        match timeout(BLOCKING_TIMEOUT, running).await {
            Ok(Ok(answer)) => answer.map_err(HttpError::Evaluation),
            Ok(Err(_)) => {
                log::error!("a call's thread of evaluations ended without an answer");
                Err(HttpError::Internal)
            }
            Err(_) => {
                let words = "it did not answer in time".to_owned();
                Err(EvaluationsError::Store(words).into())
            }
        }
    }
}

/// Returns the response, or the error in the shape of this API.
pub fn respond(answer: Result<Response, HttpError>) -> Response {
    answer.unwrap_or_else(|refusal| refusal.answer(HttpApi::Evaluations))
}
