//! `/v1/workspaces/{id}`: `run`, `processes`, `restart`, `network` and `egress`.

mod network;
mod processes;
mod runs;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::http::engine::state::EngineState;

/// Builds the routes.
pub fn routes() -> Router<Arc<EngineState>> {
    Router::new()
        .route("/v1/workspaces/{id}/run", post(runs::run))
        .route("/v1/workspaces/{id}/processes", get(processes::list))
        .route("/v1/workspaces/{id}/processes/{pid}/signal", post(processes::signal))
        .route("/v1/workspaces/{id}/restart", post(processes::restart))
        .route("/v1/workspaces/{id}/network", get(network::view).put(network::replace))
        .route("/v1/workspaces/{id}/egress", get(network::records))
}
