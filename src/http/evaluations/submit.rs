//! `POST /evaluate` and `POST /evaluations/batch`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::json;
use zeroize::Zeroizing;

use super::path::{BATCH_PREFIX, EVALUATION_PREFIX};
use super::request::{parse_batch, parse_evaluation};
use super::state::{EvaluationsState, respond};
use crate::config::TokenName;
use crate::evaluation::service::EvaluationsError;
use crate::http::error::HttpError;
use crate::http::request::access::token_name;
use crate::http::request::body::{WholeBody, check_encoding};
use crate::http::request::idempotency_key::{IDEMPOTENCY_KEY, body_digest, idempotency_key};
use crate::http::response;
use cofferdam_core::job::{ErrorCode, Idempotency, JobError, Sha256};

/// Submits an evaluation.
pub async fn evaluate(State(state): State<Arc<EvaluationsState>>, request: Request) -> Response {
    respond(try_evaluate(&state, request).await)
}

/// Submits a batch.
pub async fn batch(State(state): State<Arc<EvaluationsState>>, request: Request) -> Response {
    respond(try_batch(&state, request).await)
}

async fn try_evaluate(state: &EvaluationsState, request: Request) -> Result<Response, HttpError> {
    let bytes_max = state.settings.bounds.body_bytes_max();
    let Submission { owner, key, body } = Submission::read(state, request, bytes_max).await?;
    let settings = Arc::clone(&state.settings);
    // Parsed off the worker threads too: megabytes of JSON take time.
    let submit = move |all: &dyn crate::evaluation::service::Evaluations| {
        let request = parse_evaluation(&body, &settings.bounds)?;
        all.submit(owner.as_str(), request, idempotency("/evaluate", key, &body)?)
    };
    let eval_id = state.run_blocking(submit).await?;
    let location = format!("{EVALUATION_PREFIX}{eval_id}");
    Ok(accepted(&json!({ "eval_id": eval_id }), location))
}

async fn try_batch(state: &EvaluationsState, request: Request) -> Result<Response, HttpError> {
    let bytes_max = state.settings.batch_body_bytes_max;
    let Submission { owner, key, body } = Submission::read(state, request, bytes_max).await?;
    let settings = Arc::clone(&state.settings);
    let submit = move |all: &dyn crate::evaluation::service::Evaluations| {
        let request = parse_batch(&body, &settings.bounds)?;
        all.submit_batch(owner.as_str(), request, idempotency("/evaluations/batch", key, &body)?)
    };
    let submitted = state.run_blocking(submit).await?;
    let location = format!("{BATCH_PREFIX}{}", submitted.batch_id);
    Ok(accepted(&json!(submitted), location))
}

/// A request with its whole body.
struct Submission {
    owner: TokenName,
    key: Option<String>,
    body: WholeBody,
}

impl Submission {
    /// Checks the head first, then reads the body.
    async fn read(
        state: &EvaluationsState,
        request: Request,
        bytes_max: u64,
    ) -> Result<Self, HttpError> {
        let (head, body) = request.into_parts();
        check_encoding(&head.headers)?;
        let key = idempotency_key(&head.headers)
            .map_err(|invalid| EvaluationsError::invalid(IDEMPOTENCY_KEY, invalid.to_string()))?;
        let body = state.bodies.read(body, Some(bytes_max)).await;
        let body = body.map_err(|refusal| match refusal {
            HttpError::PayloadTooLarge => {
                let error = JobError::new(ErrorCode::TooLarge, refusal.to_string());
                error.with("bytes_max", bytes_max).into()
            }
            other => other,
        })?;
        Ok(Self { owner: token_name(&head.extensions), key, body })
    }
}

/// The key covers the route too: a key of one route is not one of another.
fn idempotency(
    route: &str,
    key: Option<String>,
    body: &[u8],
) -> Result<Option<Idempotency>, EvaluationsError> {
    let Some(key) = key else { return Ok(None) };
    let digest = body_digest(&Zeroizing::new([route.as_bytes(), b"\0", body].concat()));
    let body = Sha256::parse(&digest)
        .ok_or_else(|| EvaluationsError::Store("no digest of the request".to_owned()))?;
    Ok(Some(Idempotency { key, body }))
}

fn accepted(body: &serde_json::Value, location: String) -> Response {
    let mut response = response::json(StatusCode::ACCEPTED, body);
    let location = HeaderValue::try_from(location).ok();
    response.headers_mut().extend(location.map(|location| (LOCATION, location)));
    response
}
