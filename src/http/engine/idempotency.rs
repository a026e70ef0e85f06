//! `POST` requests with an `Idempotency-Key`.

use std::time::Instant;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};

use super::kept_answers::{KeptAnswer, KeptAnswers, KeyGuard, KeyUse};
use crate::config::TokenName;
use crate::http::error::HttpError;
use crate::http::request::access::token_name;
use crate::workspace::EngineError;
use cofferdam_core::values::digest::sha256_of;

/// The header with the client's own name for its request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The maximum length of the key in bytes.
const KEY_BYTES_MAX: usize = 255;

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
        Ok(Self { owner, key: key(&head.headers)?, target })
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
        let digest = sha256_of(&[self.target.as_bytes(), b"\0", body].concat());
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

/// Returns the Idempotency-Key, if present and valid.
fn key(headers: &HeaderMap) -> Result<Option<String>, EngineError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let bytes = value.as_bytes();
    let is_key = (1..=KEY_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(u8::is_ascii_graphic)
        && values.next().is_none();
    let key = is_key.then(|| value.to_str().map(str::to_owned).ok()).flatten();
    key.map(Some).ok_or_else(|| {
        EngineError::invalid("Idempotency-Key", "want one, of 1 to 255 visible characters of ASCII")
    })
}
