//! `POST /v1/jobs`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

use super::path::PREFIX;
use super::state::{JobsState, respond};
use crate::config::TokenName;
use crate::http::error::HttpError;
use crate::http::request::access::token_name;
use crate::http::request::body::check_encoding;
use crate::http::request::idempotency_key::{IDEMPOTENCY_KEY, body_digest, idempotency_key};
use crate::http::response;
use crate::job::{Jobs, Submitted};
use cofferdam_core::job::{
    ErrorCode, Idempotency, JobError, JobRequestError, Sha256, parse_request,
};

/// Submits a job.
pub async fn submit(State(state): State<Arc<JobsState>>, request: Request) -> Response {
    respond(try_submit(&state, request).await)
}

/// Checks the head first, then the body, then calls the service.
async fn try_submit(state: &JobsState, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    check_encoding(&head.headers)?;
    let key = idempotency_key(&head.headers).map_err(|invalid| {
        JobError::new(ErrorCode::InvalidRequest, format!("{IDEMPOTENCY_KEY}: {invalid}"))
            .with("path", IDEMPOTENCY_KEY)
    })?;
    let bytes_max = state.input_bytes_max;
    let body = state.bodies.read(body, Some(bytes_max)).await;
    let body = body.map_err(|refusal| match refusal {
        HttpError::PayloadTooLarge => {
            let error = JobError::new(ErrorCode::TooLarge, refusal.to_string());
            error.with("bytes_max", bytes_max).into()
        }
        other => other,
    })?;
    // Parsed off the worker threads too: a megabyte of JSON and patterns takes time.
    let token = token_name(&head.extensions);
    let asked = state.run_blocking(move |jobs| Ok(take(jobs, &token, &body, key))).await?;
    let submitted = asked?;
    let mut response = response::json(StatusCode::ACCEPTED, &submitted);
    let location = HeaderValue::try_from(format!("{PREFIX}{}", submitted.job_id));
    response.headers_mut().extend(location.ok().map(|location| (LOCATION, location)));
    Ok(response)
}

fn take(
    jobs: &dyn Jobs,
    token: &TokenName,
    body: &[u8],
    key: Option<String>,
) -> Result<Submitted, HttpError> {
    let request = parse_request(body).map_err(|fault| match fault {
        JobRequestError::NotJson(error) => HttpError::NotJson(error),
        JobRequestError::Invalid(error) => HttpError::Job(error),
    })?;
    let digest = || Sha256::parse(&body_digest(body)).ok_or(HttpError::Internal);
    let named = |key| digest().map(|body| Idempotency { key, body });
    let idempotency = key.map(named).transpose()?;
    jobs.submit(request.of_token(token.as_str()), idempotency).map_err(HttpError::Job)
}
