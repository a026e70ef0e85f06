//! Paths and methods to handlers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Serialize;
use serde_json::json;

use super::checks::Checks;
use super::error::{Api, Refusal};
use super::jobs::{self, JobsFront};
use super::metrics::{self, Metrics};
use super::request::accepts;
use super::request::authorization;
use super::request::body::BodyReading;
use super::request::host;
use super::request::host::Names;
use super::request::origin;
use super::request_log;
use super::request_log::Asked;
use super::response;
use super::run::threads::RunThreads;
use super::server::shutdown::ShutdownHandle;
use crate::check::status::ServiceStatus;
use crate::config::{OnDisconnect, Tokens};
use crate::job::JobsStatus;

/// What every handler may use.
pub struct Front {
    /// The check service.
    pub checks: Arc<dyn Checks>,
    /// The threads that runs have.
    pub run_threads: RunThreads,
    /// What is exposed, wherever that is.
    pub metrics: Metrics,
    /// Stops the server.
    pub shutdown: ShutdownHandle,
    /// The longest body, bytes; none for no limit.
    pub input_bytes_max: Option<u64>,
    /// Whether some figure bounds a run's output.
    pub output_bounded: bool,
    /// The timeout of a request that names none.
    pub timeout_default: Duration,
    /// The longest timeout a request may ask for.
    pub timeout_max: Duration,
    /// How bodies are read.
    pub bodies: BodyReading,
    /// Between two signs of life on an event stream.
    pub ping_every: Duration,
    /// What becomes of a run whose client has gone.
    pub on_disconnect: OnDisconnect,
    /// Origins whose pages may post.
    pub origins_allow: Vec<String>,
    /// Names that the service answers to without a token, beside those that are always good.
    pub hosts_allow: Vec<String>,
    /// Who may ask.
    pub tokens: Tokens,
    /// Agents' jobs, where there are any.
    pub jobs: Option<Arc<JobsFront>>,
}

/// Which routes there are beside `/health`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routes {
    /// `/run` and what belongs to it, and `/v1/jobs`. All that such a listener serves but `/health`
    /// needs a token where there are any; a listener for metrics alone serves who reaches it.
    pub clients: bool,
    /// `/shutdown`, only where the operator allows it.
    pub shutdown: bool,
    /// `/metrics`.
    pub metrics: bool,
}

/// The routes.
pub fn router(front: Arc<Front>, routes: Routes, log_headers: bool) -> Router {
    let Routes { clients, shutdown: may_shut_down, metrics } = routes;
    let mut routes = Router::new().route("/health", get(health));
    if clients {
        routes = routes.route("/run", post(super::run::run)).route("/status", get(status));
        if let Some(jobs) = &front.jobs {
            routes = routes.merge(jobs::routes(Arc::clone(jobs)));
        }
    }
    if may_shut_down {
        routes = routes.route("/shutdown", post(shutdown));
    }
    if metrics {
        routes = routes.route("/metrics", get(metrics::answer));
    }
    routes = routes
        .method_not_allowed_fallback(async |uri: Uri| {
            Refusal::MethodNotAllowed.answer(Api::of(&uri))
        })
        .fallback(async |uri: Uri| Refusal::NotFound.answer(Api::of(&uri)))
        .layer(middleware::from_fn_with_state(Arc::clone(&front), check_origin));
    if clients {
        let check = middleware::from_fn_with_state(Arc::clone(&front), check_token);
        routes = routes.layer(check);
    }
    let asks_for_token = clients && !front.tokens.is_empty();
    let names = (Arc::clone(&front), asks_for_token);
    routes = routes.layer(middleware::from_fn_with_state(names, check_host));
    if log_headers {
        routes = routes.layer(middleware::from_fn(log_request));
    }
    routes.with_state(front)
}

async fn health(State(front): State<Arc<Front>>, headers: HeaderMap) -> Response {
    let (status, word, line) = if front.checks.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining", "draining\n")
    } else {
        (StatusCode::OK, "ok", "ok\n")
    };
    if accepts(&headers, "application/json") {
        response::json(status, &json!({ "status": word }))
    } else {
        response::text(status, line)
    }
}

async fn status(State(front): State<Arc<Front>>) -> Response {
    /// One object, the jobs last.
    #[derive(Serialize)]
    struct Told<'a> {
        #[serde(flatten)]
        service: ServiceStatus<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        jobs: Option<JobsStatus>,
    }
    let jobs = front.metrics.jobs().as_ref().map(JobsStatus::from);
    response::json(StatusCode::OK, &Told { service: front.checks.status(), jobs })
}

async fn shutdown(State(front): State<Arc<Front>>) -> Response {
    front.shutdown.drain();
    response::text(StatusCode::OK, "shutdown\n")
}

async fn check_origin(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    origin::check(&front.origins_allow, request, next).await
}

async fn check_host(
    State((front, asks_for_token)): State<(Arc<Front>, bool)>,
    request: Request,
    next: Next,
) -> Response {
    let names = match asks_for_token {
        true => Names::Any,
        false => Names::Trusted(&front.hosts_allow),
    };
    host::check(names, request, next).await
}

async fn check_token(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    authorization::check(&front.tokens, request, next).await
}

async fn log_request(request: Request, next: Next) -> Response {
    request_log::request(&Asked::of(request.method(), request.uri()), request.headers());
    next.run(request).await
}
