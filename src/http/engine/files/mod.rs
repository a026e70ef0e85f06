//! The files of workspaces: `/v1/workspaces/{id}/files`, `stat`, `list`, `mkdir`, `move`, `tar`, `collect`,
//! `collect-outputs`, `stage`, `stage-directory`, `digest` and `metadata`; and `/v1/skills`.

mod content;
mod download;
mod entries;
mod staging;
mod transfer;
mod upload;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post, put};

use super::state::EngineState;

/// Builds the routes.
pub fn routes() -> Router<Arc<EngineState>> {
    Router::new()
        .route(
            "/v1/workspaces/{id}/files",
            get(content::get).post(entries::put_files).put(content::put).delete(content::delete),
        )
        .route("/v1/workspaces/{id}/stat", get(entries::stat))
        .route("/v1/workspaces/{id}/list", get(entries::list))
        .route("/v1/workspaces/{id}/mkdir", post(entries::mkdir))
        .route("/v1/workspaces/{id}/move", post(entries::rename))
        .route("/v1/workspaces/{id}/tar", get(content::get_tar).put(content::put_tar))
        .route("/v1/workspaces/{id}/collect", post(entries::collect))
        .route("/v1/workspaces/{id}/collect-outputs", post(staging::outputs))
        .route("/v1/workspaces/{id}/stage", post(staging::inputs))
        .route("/v1/workspaces/{id}/stage-directory", post(staging::directory))
        .route("/v1/skills/{digest}", put(staging::put_skill))
        .route("/v1/workspaces/{id}/digest", get(entries::digest))
        .route("/v1/workspaces/{id}/metadata", get(entries::metadata))
}
