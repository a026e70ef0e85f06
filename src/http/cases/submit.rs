//! `POST /v1/cases`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::archive::unpack;
use super::path::PREFIX;
use super::request::{AskedCells, is_archive, parse_json, parse_query};
use super::state::{CasesState, SUBMIT_TIMEOUT, respond};
use crate::case::service::{CaseInput, CaseRunRequest, CaseRuns, CaseRunsError, SubmittedCaseRun};
use crate::config::TokenName;
use crate::http::error::HttpError;
use crate::http::request::access::token_name;
use crate::http::request::body::{WholeBody, check_encoding};
use crate::http::request::idempotency_key::{IDEMPOTENCY_KEY, body_digest, idempotency_key};
use crate::http::response;
use cofferdam_core::job::{ErrorCode, Idempotency, JobError, Sha256};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::digest::sha256_of;

/// Submits a Case.
pub async fn submit(State(state): State<Arc<CasesState>>, request: Request) -> Response {
    respond(try_submit(&state, request).await)
}

/// Checks the head first, then the body, then calls the service.
async fn try_submit(state: &CasesState, request: Request) -> Result<Response, HttpError> {
    let bytes_max = state.input_bytes_max;
    let submission = Submission::read(state, request).await?;
    let permit = turn(state).await?;
    let deadline = Deadline::after(SUBMIT_TIMEOUT);
    let submit = move |all: &dyn CaseRuns| {
        let submitted = submission.submit(all, bytes_max, deadline);
        drop(permit);
        submitted
    };
    let submitted = state.run_blocking_within(SUBMIT_TIMEOUT, submit).await?;
    let mut response = response::json(StatusCode::ACCEPTED, &submitted);
    let location = HeaderValue::try_from(format!("{PREFIX}{}", submitted.run_id)).ok();
    response.headers_mut().extend(location.map(|location| (LOCATION, location)));
    Ok(response)
}

/// Waits until a submission may be worked on.
async fn turn(state: &CasesState) -> Result<OwnedSemaphorePermit, HttpError> {
    let permit = Arc::clone(&state.submissions).acquire_owned();
    let full = || JobError::new(ErrorCode::QueueFull, "too many submissions at once");
    let permit = timeout(SUBMIT_TIMEOUT, permit).await.ok().and_then(Result::ok);
    permit.ok_or_else(|| full().into())
}

/// A request with its whole body.
struct Submission {
    owner: TokenName,
    key: Option<String>,
    query: String,
    body: WholeBody,
}

impl Submission {
    async fn read(state: &CasesState, request: Request) -> Result<Self, HttpError> {
        let (head, body) = request.into_parts();
        check_encoding(&head.headers)?;
        let key = idempotency_key(&head.headers)
            .map_err(|invalid| CaseRunsError::invalid(IDEMPOTENCY_KEY, invalid.to_string()))?;
        let bytes_max = state.input_bytes_max;
        let body = state.bodies.read(body, Some(bytes_max)).await;
        let body = body.map_err(|refusal| match refusal {
            HttpError::PayloadTooLarge => CaseRunsError::TooLarge { bytes_max }.into(),
            other => other,
        })?;
        let query = head.uri.query().unwrap_or_default().to_owned();
        Ok(Self { owner: token_name(&head.extensions), key, query, body })
    }

    fn submit(
        &self,
        all: &dyn CaseRuns,
        bytes_max: u64,
        deadline: Deadline,
    ) -> Result<SubmittedCaseRun, HttpError> {
        let (input, asked) = if is_archive(&self.body) {
            let asked = parse_query(&self.query)?;
            let staged = all.stage()?;
            unpack(&self.body, staged.path(), bytes_max, deadline)?;
            (CaseInput::Staged(staged), asked)
        } else {
            let (path, asked) = parse_json(&self.query, &self.body)?;
            (CaseInput::Path(path), asked)
        };
        let AskedCells { trials, harnesses, models } = asked;
        let request = CaseRunRequest { input, trials, harnesses, models };
        Ok(all.submit(self.owner.as_str(), request, self.idempotency()?)?)
    }

    /// The query of an archive is a part of the request too.
    fn idempotency(&self) -> Result<Option<Idempotency>, HttpError> {
        let Some(key) = self.key.clone() else { return Ok(None) };
        let digest = sha256_of(format!("{}\0{}", self.query, body_digest(&self.body)).as_bytes());
        let body = Sha256::parse(&digest).ok_or(HttpError::Internal)?;
        Ok(Some(Idempotency { key, body }))
    }
}
