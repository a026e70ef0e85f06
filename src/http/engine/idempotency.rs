//! `POST` requests with an `Idempotency-Key`.

use std::time::Instant;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::response::Response;
use zeroize::Zeroizing;

use super::kept_answers::{KeptAnswer, KeptAnswers, KeyGuard, KeyUse};
use super::query::{QueryParams, workspace_id};
use super::state::EngineState;
use crate::config::TokenName;
use crate::http::error::HttpError;
use crate::http::request::access::token_name;
use crate::http::request::idempotency_key::{IDEMPOTENCY_KEY, body_digest, idempotency_key};
use crate::workspace::{EngineError, WorkspaceService};

/// What identifies a request besides its body.
#[derive(Debug, Clone)]
pub struct RequestKey {
    owner: TokenName,
    key: Option<String>,
    target: String,
}

impl RequestKey {
    /// The key of a request with this head.
    ///
    /// # Errors
    /// There is an `Idempotency-Key`, and it is malformed.
    pub fn of(head: &Parts) -> Result<Self, EngineError> {
        let target = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        let owner = token_name(&head.extensions);
        let key = idempotency_key(&head.headers)
            .map_err(|invalid| EngineError::invalid(IDEMPOTENCY_KEY, invalid.to_string()))?;
        Ok(Self { owner, key, target })
    }

    /// The same for an answer in another form, which is not the one that was given.
    #[must_use]
    pub fn in_form(self, form: &str) -> Self {
        Self { target: format!("{} {form}", self.target), ..self }
    }

    /// The token that the request was sent with.
    pub fn owner(&self) -> &TokenName {
        &self.owner
    }

    /// Begins the request with this body.
    ///
    /// # Errors
    /// The key was used for another request, or its request is not answered yet.
    pub fn begin(&self, answers: &KeptAnswers, body: &[u8]) -> Result<BegunRequest, EngineError> {
        let Some(key) = self.key.clone() else { return Ok(BegunRequest::New(None)) };
        let whole = Zeroizing::new([self.target.as_bytes(), b"\0", body].concat());
        let digest = body_digest(&whole);
        Ok(match answers.begin(&self.owner, key, digest, Instant::now())? {
            KeyUse::First(guard) => BegunRequest::New(Some(guard)),
            KeyUse::Again(answer) => BegunRequest::Answered(answer),
        })
    }

    /// Makes the answer to the request with this body, or gives the first one again.
    ///
    /// # Errors
    /// Those of `make`, and of [`RequestKey::begin`].
    pub fn once(
        &self,
        answers: &KeptAnswers,
        body: &[u8],
        make: impl FnOnce() -> Result<KeptAnswer, HttpError>,
    ) -> Result<KeptAnswer, HttpError> {
        match self.begin(answers, body)? {
            BegunRequest::Answered(answer) => Ok(answer),
            BegunRequest::New(guard) => {
                let answer = make()?;
                if let Some(guard) = guard {
                    guard.answered(&answer, Instant::now());
                }
                Ok(answer)
            }
        }
    }
}

/// A request after the look at its key.
#[derive(Debug)]
pub enum BegunRequest {
    /// It is new. Its answer is kept if there is a guard.
    New(Option<KeyGuard>),
    /// It was answered before.
    Answered(KeptAnswer),
}

/// Answers a POST below `W` that has a body and no query. `make` gets the owner, the id of the workspace
/// and the body, on a thread that may block.
pub async fn answer_post<F>(
    state: &EngineState,
    request: Request,
    make: F,
) -> Result<Response, HttpError>
where
    F: FnOnce(&WorkspaceService, &TokenName, &str, &[u8]) -> Result<KeptAnswer, HttpError>
        + Send
        + 'static,
{
    let (head, body) = request.into_parts();
    let id = workspace_id(&head.uri)?;
    QueryParams::parse(&head.uri, &[])?;
    let key = RequestKey::of(&head)?;
    let body = state.read(&head.headers, body).await?;
    let answers = state.answers.clone();
    let answer = state.run_blocking(move |service| {
        key.once(&answers, &body, || make(service, key.owner(), &id, &body))
    });
    Ok(answer.await?.into_response())
}
