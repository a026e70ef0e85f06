//! `/v1/engine` and `/v1/workspaces`: the code executor engine for HTTP clients.
//!
//! Calls that may block run on their own threads ([`state::EngineState::run_blocking`]), so that the two
//! worker threads keep serving connections.

pub(crate) mod artifacts;
mod execute;
mod files;
pub(crate) mod helpers;
mod idempotency;
mod kept_answers;
mod page;
mod programs;
mod query;
mod sessions;
mod snapshots;
pub(crate) mod state;
mod workspaces;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};

use self::query::QueryParams;
use self::state::EngineState;
use super::response;

/// Builds the routes.
pub fn routes<S>(state: Arc<EngineState>) -> Router<S> {
    Router::new()
        .route("/v1/engine", get(describe))
        .route("/v1/workspaces", get(workspaces::list).post(workspaces::create))
        .route(
            "/v1/workspaces/{id}",
            get(workspaces::view).patch(workspaces::patch).delete(workspaces::cleanup),
        )
        .route("/v1/workspaces/{id}/save", post(workspaces::save))
        .merge(programs::routes())
        .merge(sessions::routes())
        .merge(execute::routes())
        .merge(snapshots::routes())
        .merge(files::routes())
        .with_state(state)
}

async fn describe(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let params = QueryParams::parse(request.uri(), &[]);
    let described = params.map(|_| response::json(StatusCode::OK, &state.service().describe()));
    state.respond(described.map_err(Into::into))
}
