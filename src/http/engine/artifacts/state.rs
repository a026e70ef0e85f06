//! The state that the handlers of artifacts share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::http::engine::kept_answers::KeptAnswers;
use crate::http::error::HttpError;
use crate::workspace::artifacts::LazyArtifacts;
use crate::workspace::{EngineCode, EngineError};
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};

/// How long a call may take.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(60);

/// The state that the handlers of artifacts share.
#[derive(Debug)]
pub struct ArtifactsState {
    artifacts: Arc<LazyArtifacts>,
    /// How long a client may take to send a piece, and to wait for others that send.
    pub body_within: Duration,
    /// The answers that are given again.
    pub answers: KeptAnswers,
    uploads: Arc<Semaphore>,
    downloads: Arc<Semaphore>,
}

impl ArtifactsState {
    /// Creates the state for `artifacts`, of which `transfers_max` are received at once, and as many
    /// sent.
    pub fn new(artifacts: Arc<LazyArtifacts>, body_within: Duration, transfers_max: usize) -> Self {
        let permits = || Arc::new(Semaphore::new(transfers_max.clamp(1, Semaphore::MAX_PERMITS)));
        let answers = KeptAnswers::default();
        Self { artifacts, body_within, answers, uploads: permits(), downloads: permits() }
    }

    /// Waits until it may receive one more version.
    pub async fn upload_permit(&self) -> Result<OwnedSemaphorePermit, HttpError> {
        let waiting = Arc::clone(&self.uploads).acquire_owned();
        let permit = timeout(self.body_within, waiting).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| busy("uploads").into())
    }

    /// Takes the permit to send one more version.
    pub fn download_permit(&self) -> Result<OwnedSemaphorePermit, HttpError> {
        let permit = Arc::clone(&self.downloads).try_acquire_owned();
        permit.map_err(|_| busy("downloads").into())
    }

    /// Calls the store on a thread that may block, under the id of the current request.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&LazyArtifacts) -> Result<T, HttpError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let (artifacts, id) = (Arc::clone(&self.artifacts), RequestId::current());
        let running = spawn_blocking(move || on_behalf_of(id, || call(&artifacts)));
        match timeout(BLOCKING_TIMEOUT, running).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                log::error!("an artifact call's thread ended without an answer");
                Err(HttpError::Internal)
            }
            Err(_) => {
                let words = "the store of artifacts did not answer in time";
                Err(EngineError::new(EngineCode::IoFailed, words).into())
            }
        }
    }
}

fn busy(what: &str) -> EngineError {
    let words = format!("as many {what} of artifacts as there may be at once");
    EngineError::new(EngineCode::EngineBusy, words)
}
