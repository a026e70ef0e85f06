//! The state that the engine's handlers share.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::kept_answers::KeptAnswers;
use crate::config::OnDisconnect;
use crate::http::error::{HttpApi, HttpError};
use crate::http::request::body::{BodyReader, WholeBody, check_encoding};
use crate::http::run::threads::RunThreads;
use crate::workspace::{EngineCode, EngineError, WorkspaceService};
use cofferdam_core::json::parse_object;
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};

/// Threads that refuse programs while every permit is taken.
const ADMISSION_THREADS: usize = 4;
/// How long a call may take.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(60);

/// The state that the engine's handlers share.
#[derive(Debug)]
pub struct EngineState {
    service: Arc<WorkspaceService>,
    /// What they accept from clients.
    pub limits: EngineHttpLimits,
    /// The answers that are given again.
    pub answers: KeptAnswers,
    /// The threads that programs are supervised on.
    pub threads: RunThreads,
    /// The threads that read and write files for transfers.
    pub transfer_threads: RunThreads,
    /// One permit per transfer.
    pub transfers: Arc<Semaphore>,
}

/// What the engine's handlers accept from clients.
#[derive(Debug, Clone)]
pub struct EngineHttpLimits {
    /// The maximum size of a request in JSON in bytes.
    pub input_bytes_max: u64,
    /// Reads request bodies.
    pub bodies: BodyReader,
    /// The origins whose pages may attach to sessions, besides those of this host.
    pub origins: Vec<String>,
    /// The interval between pings on an event stream.
    pub ping_every: Duration,
    /// Uploads and downloads of files at once.
    pub transfers_max: usize,
    /// What happens to a run when its client disconnects.
    pub on_disconnect: OnDisconnect,
}

impl EngineState {
    /// Creates the state for `service`.
    pub fn new(service: Arc<WorkspaceService>, limits: EngineHttpLimits) -> Self {
        let threads = RunThreads::new(service.metrics().runs_max + ADMISSION_THREADS);
        let transfers_max = limits.transfers_max.clamp(1, Semaphore::MAX_PERMITS);
        let transfer_threads = RunThreads::new(transfers_max);
        let transfers = Arc::new(Semaphore::new(transfers_max));
        let answers = KeptAnswers::default();
        Self { service, limits, answers, threads, transfer_threads, transfers }
    }

    /// The service.
    pub fn service(&self) -> &Arc<WorkspaceService> {
        &self.service
    }

    /// Reads a request in JSON.
    pub async fn read(&self, headers: &HeaderMap, body: Body) -> Result<WholeBody, HttpError> {
        check_encoding(headers)?;
        let bytes_max = self.limits.input_bytes_max;
        let body = self.limits.bodies.read(body, Some(bytes_max)).await;
        body.map_err(|refusal| match refusal {
            HttpError::PayloadTooLarge => {
                let error = EngineError::new(EngineCode::TooLarge, refusal.to_string());
                error.with("bytes_max", bytes_max).into()
            }
            other => other,
        })
    }

    /// Calls the service on a thread that may block, under the id of the current request.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&WorkspaceService) -> Result<T, HttpError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let (service, id) = (Arc::clone(&self.service), RequestId::current());
        let running = spawn_blocking(move || on_behalf_of(id, || call(&service)));
        match timeout(BLOCKING_TIMEOUT, running).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                log::error!("an engine call's thread ended without an answer");
                Err(HttpError::Internal)
            }
            Err(_) => {
                let words = "the engine did not answer in time";
                Err(EngineError::new(EngineCode::IoFailed, words).into())
            }
        }
    }

    /// Returns the response, or the error in the shape of the engine's API.
    pub fn respond(&self, answer: Result<Response, HttpError>) -> Response {
        answer.unwrap_or_else(|refusal| {
            if let HttpError::Engine(error) = &refusal {
                self.service.count_refusal(error.code);
            }
            refusal.answer(HttpApi::Jobs)
        })
    }
}

/// Parses a request all of whose keys are optional: an empty body has none of them.
pub fn parse_optional<T: DeserializeOwned>(body: &[u8]) -> Result<T, EngineError> {
    parse(if body.is_empty() { b"{}" } else { body })
}

/// Parses a request. Unknown keys are refused by `T`.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, EngineError> {
    parse_object(body).map_err(EngineError::from)
}
