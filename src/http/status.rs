//! `GET /health`, `GET /status` and `POST /shutdown`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde_json::json;

use super::app_state::AppState;
use super::request::accepts;
use super::response;
use crate::check::status::ServiceStatus;
use crate::job::JobsStatus;

pub async fn health(State(state): State<Arc<AppState>>, headers: HeaderMap) -> Response {
    let (status, word, line) = if state.checks.is_draining() {
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

pub async fn status(State(state): State<Arc<AppState>>) -> Response {
    /// The status as one object, with the jobs last.
    #[derive(Serialize)]
    struct StatusBody<'a> {
        #[serde(flatten)]
        service: ServiceStatus<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        jobs: Option<JobsStatus>,
    }
    let jobs = state.metrics.jobs().as_ref().map(JobsStatus::from);
    response::json(StatusCode::OK, &StatusBody { service: state.checks.status(), jobs })
}

pub async fn shutdown(State(state): State<Arc<AppState>>) -> Response {
    state.shutdown.drain();
    response::text(StatusCode::OK, "shutdown\n")
}
