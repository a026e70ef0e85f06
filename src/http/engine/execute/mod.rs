//! `POST /v1/execute`.

mod contexts;

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;

use super::idempotency::{BegunRequest, RequestKey};
use super::kept_answers::KeptAnswer;
use super::query::QueryParams;
use super::state::{EngineState, parse};
use crate::http::error::HttpError;
use crate::http::run::running::RunningTask;
use crate::http::server::connection::ClientSocket;
use crate::workspace::execute::ExecuteRequest;
use crate::workspace::{EngineCode, EngineError};
use cofferdam_core::SetupFailure;
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};

/// Builds the routes.
pub fn routes() -> Router<Arc<EngineState>> {
    Router::new().route("/v1/execute", post(execute)).merge(contexts::routes())
}

async fn execute(
    State(state): State<Arc<EngineState>>,
    Extension(client): Extension<ClientSocket>,
    request: Request,
) -> Response {
    state.respond(try_execute(&state, &client, request).await)
}

async fn try_execute(
    state: &EngineState,
    client: &ClientSocket,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    QueryParams::parse(&head.uri, &[])?;
    let key = RequestKey::of(&head)?;
    let body = state.read(&head.headers, body).await?;
    let answers = state.answers.clone();
    let begun = state.run_blocking(move |service| {
        let guard = match key.begin(&answers, &body)? {
            BegunRequest::Answered(answer) => return Ok(Err(answer)),
            BegunRequest::New(guard) => guard,
        };
        let request: ExecuteRequest = parse(&body)?;
        // It holds memory that other requests may need.
        drop(body);
        Ok(Ok((guard, service.begin_execution(key.owner(), request)?)))
    });
    let (guard, call) = match begun.await? {
        Ok(begun) => begun,
        Err(answer) => return Ok(answer.into_response()),
    };
    // Without a thread: many may wait.
    let turns = call.wait_turns().await?;
    let (service, request_id) = (Arc::clone(state.service()), RequestId::current());
    let run = move |watch| {
        on_behalf_of(request_id, || {
            let (executed, is_over) = service.execute(call, turns, &watch)?;
            let answer = KeptAnswer::json(StatusCode::OK, &executed);
            // The client of a call that was over has left, and may ask again.
            if let Some(guard) = guard.filter(|_| !is_over) {
                guard.answered(&answer, Instant::now());
            }
            Ok(answer)
        })
    };
    let on_disconnect = state.limits.on_disconnect;
    let running = RunningTask::start(&state.threads, client, on_disconnect, failed, run)?;
    Ok(running.result().await?.into_response())
}

fn failed(failure: &SetupFailure) -> HttpError {
    EngineError::new(EngineCode::SandboxFailed, failure.to_string()).into()
}
