//! `POST /run`.

pub(crate) mod event_stream;
pub(crate) mod output_queue;
mod reply;
pub(crate) mod running;
pub(crate) mod threads;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;

use self::output_queue::{QUEUED_BYTES_MAX, output_queue};
use self::running::RunningTask;
use super::error::{HttpApi, HttpError};
use super::request::accepts;
use super::request::body::check_encoding;
use super::request::log::with_log_context;
use super::server::app_state::AppState;
use super::server::connection::ClientSocket;
use super::server::rate_limit::RateLimit;
use super::services::RunCheck;
use crate::check::request::CheckRequest;
use crate::check::run::{CheckError, CheckReport};
use cofferdam_core::{OutputSink, SetupFailure, Watch};

/// Handles one run request.
pub async fn run(
    State(state): State<Arc<AppState>>,
    Extension(client): Extension<ClientSocket>,
    request: Request,
) -> Response {
    try_run(&state, &client, request).await.unwrap_or_else(IntoResponse::into_response)
}

/// Applies the steps in the order of the contract: the head, the body, the request, the permit.
async fn try_run(
    state: &AppState,
    client: &ClientSocket,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    check_encoding(&head.headers)?;
    let body = state.bodies.read(body, state.input_bytes_max).await?;
    let check = CheckRequest::from_json(&body, state.timeout_default, state.timeout_max)?;
    drop(body);
    let (checks, slug) = (Arc::clone(&state.checks), check.lang_slug.clone());
    let admit = with_log_context(slug, move || checks.admit(check));
    let (threads, on_disconnect) = (&state.run_threads, state.on_disconnect);
    if !accepts(&head.headers, "text/event-stream") {
        let run = move |watch| Ok(reply::from_report(&run_check(admit, watch, None)?));
        let running = RunningTask::start(threads, client, on_disconnect, failed, run)?;
        return running.result().await;
    }
    // An output limit already bounds the queue, so the program need not wait for its reader.
    let (queued_bytes_max, pace) = match state.output_bounded {
        true => (usize::MAX, None),
        false => (QUEUED_BYTES_MAX, Some(RateLimit::new(Instant::now()))),
    };
    let (sink, queue) = output_queue(queued_bytes_max)
        .map_err(|error| CheckError::Sandbox(SetupFailure::from_io("eventfd", &error)))?;
    let run =
        move |watch| Ok(event_stream::result(&run_check(admit, watch, Some(Box::new(sink)))?));
    let running = RunningTask::start(threads, client, on_disconnect, failed, run)?;
    event_stream::respond(running, queue, pace, state.ping_every, HttpApi::Runs).await
}

fn failed(failure: &SetupFailure) -> HttpError {
    CheckError::Sandbox(failure.clone()).into()
}

/// Admits a check and runs it.
fn run_check(
    admit: impl FnOnce() -> Result<RunCheck, CheckError>,
    watch: Watch,
    sink: Option<Box<dyn OutputSink>>,
) -> Result<CheckReport, HttpError> {
    admit().and_then(|check| check(watch, sink)).map_err(HttpError::Check)
}
