//! `POST /run`.

mod event_stream;
mod output_queue;
mod reply;
pub(crate) mod running;
pub(crate) mod threads;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;

use self::output_queue::{QUEUED_BYTES_MAX, output_queue};
use self::running::RunningCheck;
use super::app_state::AppState;
use super::error::HttpError;
use super::request::accepts;
use super::request::body::check_encoding;
use super::request_log;
use super::server::connection::ClientSocket;
use super::server::rate_limit::RateLimit;
use crate::check::request::CheckRequest;
use crate::check::run::{CheckError, CheckReport};
use cofferdam_core::{OutputSink, SetupFailure};

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
    let admit = request_log::with_log_context(slug, move || checks.admit(check));
    let (threads, on_disconnect) = (&state.run_threads, state.on_disconnect);
    if !accepts(&head.headers, "text/event-stream") {
        let make = |report: CheckReport| reply::from_report(&report);
        let running = RunningCheck::start(threads, admit, client, on_disconnect, None, make)?;
        return running.report().await;
    }
    // An output limit already bounds the queue, so the program need not wait for its reader.
    let (queued_bytes_max, pace) = match state.output_bounded {
        true => (usize::MAX, None),
        false => (QUEUED_BYTES_MAX, Some(RateLimit::new(Instant::now()))),
    };
    let (sink, queue) = output_queue(queued_bytes_max)
        .map_err(|error| CheckError::Sandbox(SetupFailure::from_io("eventfd", &error)))?;
    let make = |report: CheckReport| event_stream::result(&report);
    let sink: Option<Box<dyn OutputSink>> = Some(Box::new(sink));
    let running = RunningCheck::start(threads, admit, client, on_disconnect, sink, make)?;
    event_stream::respond(running, queue, pace, state.ping_every).await
}
