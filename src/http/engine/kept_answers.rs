//! The first answers to requests with an `Idempotency-Key`, in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;

use crate::config::TokenName;
use crate::workspace::{EngineCode, EngineError};

/// How long a key stands for its request.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// The most keys that are kept. The oldest is forgotten for a new one.
const KEYS_MAX: usize = 10_000;
/// The most bytes of the answers that are kept. The oldest are forgotten for a new one.
const ANSWERS_BYTES_MAX: usize = 64 << 20;

/// A key, with the token whose it is.
type OwnedKey = (TokenName, String);

/// An answer that can be given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    status: StatusCode,
    location: Option<String>,
    media_type: &'static str,
    body: Bytes,
}

/// The answers so far.
#[derive(Debug, Clone, Default)]
pub struct KeptAnswers(Arc<Mutex<KeptState>>);

#[derive(Debug, Default)]
struct KeptState {
    by_key: BTreeMap<OwnedKey, KeptRequest>,
    /// Those that are answered, the oldest first.
    answered: VecDeque<OwnedKey>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptRequest {
    digest: String,
    /// None until the request is answered.
    answer: Option<(Instant, KeptAnswer)>,
}

/// What a key means for a request.
#[derive(Debug)]
pub enum KeyUse {
    /// The request is the first with the key.
    First(KeyGuard),
    /// The same request was answered before.
    Again(KeptAnswer),
}

/// A key whose request is not answered. Dropping it frees the key.
#[derive(Debug)]
pub struct KeyGuard {
    answers: KeptAnswers,
    key: OwnedKey,
}

impl KeptAnswer {
    /// An answer in JSON.
    pub fn json(status: StatusCode, value: &impl Serialize) -> Self {
        // All of our types serialize.
        let body = serde_json::to_vec(value).unwrap_or_default().into();
        Self { status, location: None, media_type: "application/json", body }
    }

    /// The last event of a stream.
    pub fn event(event: String) -> Self {
        let media_type = "text/event-stream";
        Self { status: StatusCode::OK, location: None, media_type, body: event.into() }
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The answer with a `Location`.
    #[must_use]
    pub fn at(self, location: String) -> Self {
        Self { location: Some(location), ..self }
    }

    /// The response.
    pub fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        let location = self.location.and_then(|location| HeaderValue::try_from(location).ok());
        headers.extend(location.map(|location| (LOCATION, location)));
        response
    }
}

impl KeptAnswers {
    /// Begins a request with `key`, whose content has this digest.
    ///
    /// # Errors
    /// The key was used for another request, or its request is not answered yet.
    pub fn begin(
        &self,
        token: &TokenName,
        key: String,
        digest: String,
        now: Instant,
    ) -> Result<KeyUse, EngineError> {
        let key = (token.clone(), key);
        let mut state = self.lock();
        state.forget_old(now);
        match state.by_key.get(&key) {
            None => {}
            Some(kept) if kept.digest != digest => {
                return Err(conflict("this Idempotency-Key came with another request before"));
            }
            Some(KeptRequest { answer: Some((_, answer)), .. }) => {
                return Ok(KeyUse::Again(answer.clone()));
            }
            Some(_) => {
                return Err(conflict("the request with this Idempotency-Key is not answered yet"));
            }
        }
        state.by_key.insert(key.clone(), KeptRequest { digest, answer: None });
        drop(state);
        Ok(KeyUse::First(KeyGuard { answers: self.clone(), key }))
    }

    fn lock(&self) -> MutexGuard<'_, KeptState> {
        // The parts are changed together, without a point at which a panic could interrupt them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptState {
    fn forget_old(&mut self, now: Instant) {
        while let Some(oldest) = self.answered.front() {
            let kept = self.by_key.get(oldest).and_then(|kept| kept.answer.as_ref());
            let is_old = kept.is_none_or(|(at, _)| now.saturating_duration_since(*at) >= KEPT_FOR);
            if !is_old && self.by_key.len() < KEYS_MAX && self.bytes <= ANSWERS_BYTES_MAX {
                return;
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.answered.pop_front().and_then(|oldest| self.by_key.remove(&oldest));
        if let Some((_, answer)) = oldest.and_then(|kept| kept.answer) {
            self.bytes = self.bytes.saturating_sub(answer.body.len());
        }
    }
}

impl KeyGuard {
    /// Keeps the answer for the same request.
    pub fn answered(self, answer: &KeptAnswer, now: Instant) {
        let mut state = self.answers.lock();
        if let Some(kept) = state.by_key.get_mut(&self.key) {
            kept.answer = Some((now, answer.clone()));
            state.bytes += answer.body.len();
            state.answered.push_back(self.key.clone());
        }
        while state.bytes > ANSWERS_BYTES_MAX && !state.answered.is_empty() {
            state.forget_oldest();
        }
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        let mut state = self.answers.lock();
        if state.by_key.get(&self.key).is_some_and(|kept| kept.answer.is_none()) {
            state.by_key.remove(&self.key);
        }
    }
}

fn conflict(words: &str) -> EngineError {
    EngineError::new(EngineCode::RequestConflict, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> KeptAnswer {
        KeptAnswer::json(StatusCode::CREATED, &text).at("/there".to_owned())
    }

    fn begin(answers: &KeptAnswers, token: &str, digest: &str, now: Instant) -> KeyUse {
        answers.begin(&token.into(), "k".into(), digest.into(), now).unwrap()
    }

    fn refused(answers: &KeptAnswers, digest: &str, now: Instant) -> EngineCode {
        answers.begin(&"a".into(), "k".into(), digest.into(), now).unwrap_err().code
    }

    fn first(answers: &KeptAnswers, token: &str, digest: &str, now: Instant) -> KeyGuard {
        match begin(answers, token, digest, now) {
            KeyUse::First(guard) => guard,
            KeyUse::Again(answer) => panic!("{answer:?}"),
        }
    }

    #[test]
    fn the_same_request_of_the_same_token_has_the_first_answer_for_a_day() {
        let (answers, now) = (KeptAnswers::default(), Instant::now());
        first(&answers, "a", "d", now).answered(&answer("1"), now);
        let KeyUse::Again(again) = begin(&answers, "a", "d", now) else { panic!("it is new") };
        assert_eq!(again, answer("1"));
        assert_eq!(refused(&answers, "other", now), EngineCode::RequestConflict);
        drop(first(&answers, "b", "other", now));
        let next_day = now + KEPT_FOR;
        drop(first(&answers, "a", "other", next_day));
        assert_eq!(answers.lock().bytes, 0);
    }

    #[test]
    fn a_request_that_failed_frees_its_key_and_one_in_progress_does_not() {
        let (answers, now) = (KeptAnswers::default(), Instant::now());
        let guard = first(&answers, "a", "d", now);
        assert_eq!(refused(&answers, "d", now), EngineCode::RequestConflict);
        drop(guard);
        drop(first(&answers, "a", "other", now));
        assert!(answers.lock().by_key.is_empty());
    }

    #[test]
    fn the_oldest_answers_are_forgotten_for_new_ones() {
        let (answers, now) = (KeptAnswers::default(), Instant::now());
        let large = answer(&"x".repeat(ANSWERS_BYTES_MAX / 2));
        for token in ["a", "b", "c"] {
            first(&answers, token, "d", now).answered(&large, now);
        }
        assert!(answers.lock().bytes <= ANSWERS_BYTES_MAX);
        assert!(matches!(begin(&answers, "c", "d", now), KeyUse::Again(_)));
        assert!(matches!(begin(&answers, "a", "d", now), KeyUse::First(_)));
    }
}
