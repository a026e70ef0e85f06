//! `POST /v1/jobs`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;

use super::{JobsFront, PREFIX, answered};
use crate::http::refusal::Refusal;
use crate::http::reply;
use crate::http::request_body::check_encoding;
use crate::job::{Jobs, Submitted};
use cofferdam_core::job::{
    ErrorCode, Idempotency, JobError, JobRequestError, Sha256, parse_request,
};
use cofferdam_core::values::digest::sha256_of;

/// The client's own name for its request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The longest, bytes.
const KEY_BYTES_MAX: usize = 255;

/// Takes a job.
pub async fn submit(State(front): State<Arc<JobsFront>>, request: Request) -> Response {
    answered(try_submit(&front, request).await)
}

/// The head decides first, then the body, then the service.
async fn try_submit(front: &JobsFront, request: Request) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    check_encoding(&head.headers)?;
    let key = idempotency_key(&head.headers)?;
    let bytes_max = front.input_bytes_max;
    let body = front.bodies.read(body, Some(bytes_max)).await;
    let body = body.map_err(|refusal| match refusal {
        Refusal::PayloadTooLarge => {
            let error = JobError::new(ErrorCode::TooLarge, refusal.to_string());
            error.with("bytes_max", bytes_max).into()
        }
        other => other,
    })?;
    // A megabyte of JSON and of patterns takes its time to be read, too.
    let asked = front.ask(move |jobs| Ok(take(jobs, &body, key))).await?;
    let submitted = asked?;
    let mut response = reply::json(StatusCode::ACCEPTED, &submitted);
    let location = HeaderValue::try_from(format!("{PREFIX}{}", submitted.job_id));
    response.headers_mut().extend(location.ok().map(|location| (LOCATION, location)));
    Ok(response)
}

fn take(jobs: &dyn Jobs, body: &[u8], key: Option<String>) -> Result<Submitted, Refusal> {
    let request = parse_request(body).map_err(|fault| match fault {
        JobRequestError::NotJson(error) => Refusal::NotJson(error),
        JobRequestError::Invalid(error) => Refusal::Job(error),
    })?;
    let digest = || Sha256::parse(&sha256_of(body)).ok_or(Refusal::Internal);
    let named = |key| digest().map(|body| Idempotency { key, body });
    let idempotency = key.map(named).transpose()?;
    jobs.submit(request, idempotency).map_err(Refusal::Job)
}

/// The name, if there is one: it has to be one, and a good one.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, JobError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let bytes = value.as_bytes();
    let is_key = (1..=KEY_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(u8::is_ascii_graphic)
        && values.next().is_none();
    let key = is_key.then(|| value.to_str().map(str::to_owned).ok()).flatten();
    key.map(Some).ok_or_else(|| {
        let words = "Idempotency-Key: want one, of 1 to 255 visible characters of ASCII";
        JobError::new(ErrorCode::InvalidRequest, words).with("path", "Idempotency-Key")
    })
}
