//! Snapshots and forks: `POST W/snapshot`, `POST W/fork`, and `/v1/snapshots`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::idempotency::answer_post;
use super::kept_answers::KeptAnswer;
use super::page::PageQuery;
use super::query::{QueryParams, WORKSPACES};
use super::state::{EngineState, parse_optional};
use crate::http::error::HttpError;
use crate::http::request::access::token_name;
use crate::http::request::percent_decode;
use crate::http::response;
use crate::workspace::{CreateRequest, EngineCode, EngineError, SnapshotRequest};

/// The prefix of all paths that name a snapshot.
const SNAPSHOTS: &str = "/v1/snapshots/";

/// Builds the routes.
pub fn routes() -> Router<Arc<EngineState>> {
    Router::new()
        .route("/v1/workspaces/{id}/snapshot", post(take))
        .route("/v1/workspaces/{id}/fork", post(fork))
        .route("/v1/snapshots", get(list))
        .route("/v1/snapshots/{id}", get(view).delete(delete))
}

async fn take(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let taken = answer_post(&state, request, |service, owner, id, body| {
        let request: SnapshotRequest = parse_optional(body)?;
        let view = service.take_snapshot(owner, id, request)?;
        let location = format!("{SNAPSHOTS}{}", view.snapshot_id);
        Ok(KeptAnswer::json(StatusCode::CREATED, &view).at(location))
    });
    state.respond(taken.await)
}

async fn fork(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let forked = answer_post(&state, request, |service, owner, id, body| {
        let request: CreateRequest = parse_optional(body)?;
        let (view, is_new) = service.fork(owner, id, request)?;
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        let location = format!("{WORKSPACES}{}", view.workspace_id());
        Ok(KeptAnswer::json(status, &view).at(location))
    });
    state.respond(forked.await)
}

async fn list(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    state.respond(try_list(&state, &request))
}

/// It only looks at a table in memory.
fn try_list(state: &EngineState, request: &Request) -> Result<Response, HttpError> {
    let params = QueryParams::parse(request.uri(), &["limit", "cursor"])?;
    let page = PageQuery::of(&params)?;
    let owner = token_name(request.extensions());
    let found = state.service().snapshots(&owner, page.number()?, page.limit);
    Ok(response::json(StatusCode::OK, &found))
}

async fn view(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let owner = token_name(request.extensions());
    let found = snapshot_id(request.uri()).and_then(|id| state.service().snapshot(&owner, &id));
    let found = found.map(|view| response::json(StatusCode::OK, &view));
    state.respond(found.map_err(Into::into))
}

async fn delete(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let owner = token_name(request.extensions());
    let deleted = match snapshot_id(request.uri()) {
        Ok(id) => {
            state.run_blocking(move |service| Ok(service.delete_snapshot(&owner, &id)?)).await
        }
        Err(error) => Err(error.into()),
    };
    state.respond(deleted.map(|()| StatusCode::NO_CONTENT.into_response()))
}

/// The snapshot that a path names.
fn snapshot_id(uri: &Uri) -> Result<String, EngineError> {
    QueryParams::parse(uri, &[])?;
    let name = uri.path().strip_prefix(SNAPSHOTS).and_then(percent_decode);
    name.ok_or_else(|| EngineError::new(EngineCode::SnapshotNotFound, "no such snapshot"))
}
