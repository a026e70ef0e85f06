//! `/v1/jobs`: jobs for HTTP clients.
//!
//! Calls that may block on a disk run on their own threads ([`JobsState::run_blocking`]), so that
//! the two worker threads keep serving connections.

mod download;
mod events;
mod list_query;
mod offsets;
mod output_text;
mod path;
pub(crate) mod state;
mod submit;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Serialize;

use self::path::job_id;
use self::state::{JobsState, respond};
use super::response;
use crate::job::Jobs;
use cofferdam_core::job::Artifact;

/// Builds the routes.
pub fn routes<S>(state: Arc<JobsState>) -> Router<S> {
    Router::new()
        .route("/v1/jobs", get(list).post(submit::submit))
        .route("/v1/jobs/{id}", get(view))
        .route("/v1/jobs/{id}/artifacts", get(artifacts))
        .route("/v1/jobs/{id}/artifacts/{*path}", get(download::download))
        .route("/v1/jobs/{id}/events", get(events::events))
        .route("/v1/jobs/{id}/cancel", post(cancel))
        .with_state(state)
}

async fn list(State(state): State<Arc<JobsState>>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let listed = match list_query::parse(query) {
        Ok(query) => state.run_blocking(move |jobs| jobs.list(&query).map(|page| ok(&page))).await,
        Err(error) => Err(error.into()),
    };
    respond(listed)
}

async fn view(State(state): State<Arc<JobsState>>, request: Request) -> Response {
    let viewed = match job_id(request.uri()) {
        Ok(id) => state.run_blocking(move |jobs| jobs.view(&id).map(|view| ok(&view))).await,
        Err(refusal) => Err(refusal),
    };
    respond(viewed)
}

async fn artifacts(State(state): State<Arc<JobsState>>, request: Request) -> Response {
    #[derive(Serialize)]
    struct ArtifactsBody {
        artifacts: Vec<Artifact>,
    }
    let listed = match job_id(request.uri()) {
        Ok(id) => {
            let list = move |jobs: &dyn Jobs| {
                jobs.artifacts(&id).map(|artifacts| ok(&ArtifactsBody { artifacts }))
            };
            state.run_blocking(list).await
        }
        Err(refusal) => Err(refusal),
    };
    respond(listed)
}

async fn cancel(State(state): State<Arc<JobsState>>, request: Request) -> Response {
    let canceled = match job_id(request.uri()) {
        Ok(id) => state.run_blocking(move |jobs| jobs.cancel(&id)).await,
        Err(refusal) => Err(refusal),
    };
    respond(canceled.map(|submitted| response::json(StatusCode::ACCEPTED, &submitted)))
}

fn ok(value: &impl Serialize) -> Response {
    response::json(StatusCode::OK, value)
}
