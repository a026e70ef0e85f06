//! `POST /v1/workspaces/{id}/run`.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use crate::http::engine::idempotency::{BegunRequest, RequestKey};
use crate::http::engine::kept_answers::{KeptAnswer, KeptAnswers};
use crate::http::engine::query::{QueryParams, workspace_id};
use crate::http::engine::state::{EngineState, parse};
use crate::http::error::{HttpApi, HttpError};
use crate::http::request::accepts;
use crate::http::request::body::WholeBody;
use crate::http::response::sse::event;
use crate::http::run::event_stream;
use crate::http::run::output_queue::output_queue;
use crate::http::run::running::RunningTask;
use crate::http::server::connection::ClientSocket;
use crate::workspace::{EngineCode, EngineError, ProgramReport, WorkspaceService};
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};
use cofferdam_core::{OutputSink, SetupFailure, Watch};

const EVENT_STREAM: &str = "text/event-stream";

/// Runs one program.
pub async fn run(
    State(state): State<Arc<EngineState>>,
    Extension(client): Extension<ClientSocket>,
    request: Request,
) -> Response {
    state.respond(try_run(&state, &client, request).await)
}

async fn try_run(
    state: &EngineState,
    client: &ClientSocket,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    let id = workspace_id(&head.uri)?;
    QueryParams::parse(&head.uri, &[])?;
    let key = RequestKey::of(&head)?;
    let streams = accepts(&head.headers, EVENT_STREAM);
    let key = if streams { key.in_form(EVENT_STREAM) } else { key };
    let body = state.read(&head.headers, body).await?;
    let (service, answers) = (Arc::clone(state.service()), state.answers.clone());
    let program = RequestedRun { service, answers, key, id, body };
    let (threads, on_disconnect) = (&state.threads, state.limits.on_disconnect);
    let request_id = RequestId::current();
    if !streams {
        let run = move |watch: Watch| {
            on_behalf_of(request_id, || {
                program.run(watch, None, |report| KeptAnswer::json(StatusCode::OK, report))
            })
        };
        let running = RunningTask::start(threads, client, on_disconnect, failed, run)?;
        return Ok(running.result().await?.into_response());
    }
    // The output limits bound the queue, so the program need not wait for its reader.
    let (sink, queue) = output_queue(usize::MAX)
        .map_err(|error| failed(&SetupFailure::from_io("eventfd", &error)))?;
    let run = move |watch: Watch| {
        on_behalf_of(request_id, || {
            let make = |report: &ProgramReport| KeptAnswer::event(event("result", None, report));
            Ok(program.run(watch, Some(Box::new(sink)), make)?.text())
        })
    };
    let running = RunningTask::start(threads, client, on_disconnect, failed, run)?;
    event_stream::respond(running, queue, None, state.limits.ping_every, HttpApi::Jobs).await
}

/// A request to run a program, on its way to the thread that runs it.
struct RequestedRun {
    service: Arc<WorkspaceService>,
    answers: KeptAnswers,
    key: RequestKey,
    id: String,
    body: WholeBody,
}

impl RequestedRun {
    fn run(
        self,
        mut watch: Watch,
        sink: Option<Box<dyn OutputSink>>,
        make: impl FnOnce(&ProgramReport) -> KeptAnswer,
    ) -> Result<KeptAnswer, HttpError> {
        let Self { service, answers, key, id, body } = self;
        let guard = match key.begin(&answers, &body)? {
            BegunRequest::Answered(answer) => return Ok(answer),
            BegunRequest::New(guard) => guard,
        };
        let request = parse(&body)?;
        // It holds memory that other requests may need.
        drop(body);
        let program = service.prepare_run(key.owner(), &id, request, &mut watch)?;
        let report = program.execute(&watch, sink)?;
        let answer = make(&report);
        // A run whose client has left was cancelled, and the client may ask again.
        if let Some(guard) = guard.filter(|_| !report.is_cancelled()) {
            guard.answered(&answer, Instant::now());
        }
        Ok(answer)
    }
}

fn failed(failure: &SetupFailure) -> HttpError {
    EngineError::new(EngineCode::SandboxFailed, failure.to_string()).into()
}
