//! Maps paths and methods to handlers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};

use super::error::{HttpApi, HttpError};
use super::request::access::{self, HostRule};
use super::request::log::{self as request_log, LoggedRequest};
use super::server::app_state::AppState;
use super::status::{health, shutdown, status};
use super::{cases, engine, evaluations, jobs, metrics, run};

/// Which routes a listener serves in addition to `/health`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routes {
    /// `/run`, `/status`, evaluations and everything below `/v1/`. If tokens are configured, such a listener
    /// requires one for every route except `/health`, and those that also have a public view; a listener for metrics alone requires none.
    pub clients: bool,
    /// `/shutdown`, if the operator allows it.
    pub shutdown: bool,
    /// `/metrics`.
    pub metrics: bool,
}

/// Builds the router.
pub fn router(state: Arc<AppState>, routes: Routes, log_headers: bool) -> Router {
    let Routes { clients, shutdown: may_shut_down, metrics } = routes;
    let mut routes = Router::new().route("/health", get(health));
    if clients {
        routes = routes.route("/run", post(run::run)).route("/status", get(status));
        if let Some(jobs) = &state.jobs {
            routes = routes.merge(jobs::routes(Arc::clone(jobs)));
        }
        if let Some(state) = &state.evaluations {
            routes = routes.merge(evaluations::routes(Arc::clone(state)));
        }
        if let Some(cases) = &state.cases {
            routes = routes.merge(cases::routes(Arc::clone(cases)));
        }
        if let Some(engine) = &state.engine {
            routes = routes.merge(engine::routes(Arc::clone(engine)));
        }
        if let Some(artifacts) = &state.artifacts {
            routes = routes.merge(engine::artifacts::routes(Arc::clone(artifacts)));
        }
        if let Some(helpers) = &state.helpers {
            routes = routes.merge(engine::helpers::routes(Arc::clone(helpers)));
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
            HttpError::MethodNotAllowed.answer(HttpApi::of(&uri))
        })
        .fallback(async |uri: Uri| HttpError::NotFound.answer(HttpApi::of(&uri)))
        .layer(middleware::from_fn_with_state(Arc::clone(&state), check_origin));
    if clients {
        let check = middleware::from_fn_with_state(Arc::clone(&state), check_token);
        routes = routes.layer(check);
    }
    let asks_for_token = clients && !state.tokens.is_empty();
    let names = (Arc::clone(&state), asks_for_token);
    routes = routes.layer(middleware::from_fn_with_state(names, check_host));
    if log_headers {
        routes = routes.layer(middleware::from_fn(log_request));
    }
    routes.with_state(state)
}

async fn check_origin(
    State(state): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    access::check_origin(&state.origins_allow, request, next).await
}

async fn check_host(
    State((state, asks_for_token)): State<(Arc<AppState>, bool)>,
    request: Request,
    next: Next,
) -> Response {
    let names = match asks_for_token {
        true => HostRule::Any,
        false => HostRule::Trusted(&state.hosts_allow),
    };
    access::check_host(names, request, next).await
}

async fn check_token(State(state): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    access::check_token(&state.tokens, state.public, request, next).await
}

async fn log_request(request: Request, next: Next) -> Response {
    request_log::request(&LoggedRequest::of(request.method(), request.uri()), request.headers());
    next.run(request).await
}
