//! Requests in JSON: `W/files`, `W/stat`, `W/list`, `W/mkdir`, `W/move`, `W/digest` and `W/metadata`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::transfer::NamedFile;
use crate::config::TokenName;
use crate::http::engine::idempotency::answer_post;
use crate::http::engine::kept_answers::KeptAnswer;
use crate::http::engine::page::PageQuery;
use crate::http::engine::query::{QueryParams, workspace_id};
use crate::http::engine::state::{EngineState, parse};
use crate::http::error::HttpError;
use crate::http::request::access::token_name;
use crate::http::response;
use crate::workspace::files::{
    self, CollectRequest, ListFilesQuery, MkdirRequest, MoveRequest, PutFilesRequest,
    collect_files, file_status, list_files, load_metadata, make_directory, move_file, tree_digest,
};
use crate::workspace::{EngineError, WorkspaceUse};

/// Writes files.
pub async fn put_files(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let put = |used: &mut WorkspaceUse, request: PutFilesRequest| files::put_files(used, request);
    state.respond(post(&state, request, StatusCode::OK, put).await)
}

/// Makes a directory.
pub async fn mkdir(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let make = |used: &mut WorkspaceUse, request: MkdirRequest| make_directory(used, &request);
    state.respond(post(&state, request, StatusCode::CREATED, make).await)
}

/// Moves a file.
pub async fn rename(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let rename = |used: &mut WorkspaceUse, request: MoveRequest| move_file(used, &request);
    state.respond(post(&state, request, StatusCode::OK, rename).await)
}

/// Collects files.
pub async fn collect(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let collect = |used: &mut WorkspaceUse, request: CollectRequest| collect_files(used, &request);
    state.respond(post(&state, request, StatusCode::OK, collect).await)
}

/// Handles a request with a body in JSON.
pub async fn post<B: DeserializeOwned, T: Serialize>(
    state: &EngineState,
    request: Request,
    status: StatusCode,
    call: impl FnOnce(&mut WorkspaceUse, B) -> Result<T, EngineError> + Send + 'static,
) -> Result<Response, HttpError> {
    let answer = answer_post(state, request, move |service, owner, id, body| {
        let mut used = service.enter(owner, id)?;
        Ok(KeptAnswer::json(status, &call(&mut used, parse(body)?)?))
    });
    answer.await
}

/// Describes a file.
pub async fn stat(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let owner = token_name(request.extensions());
    let named = NamedFile::of(request.uri(), &[]);
    let named = named.map(|NamedFile { id, path, .. }| (id, path));
    state.respond(read(&state, owner, named, |used, path| file_status(used, &path)).await)
}

/// Computes the digest of a directory.
pub async fn digest(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let owner = token_name(request.extensions());
    let named = NamedFile::of(request.uri(), &[]);
    let named = named.map(|NamedFile { id, path, .. }| (id, path));
    state.respond(read(&state, owner, named, |used, path| tree_digest(used, &path)).await)
}

/// Lists a directory.
pub async fn list(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let owner = token_name(request.extensions());
    let query = list_query(request.uri());
    state.respond(read(&state, owner, query, |used, query| list_files(used, &query)).await)
}

/// Shows the records of a workspace.
pub async fn metadata(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let owner = token_name(request.extensions());
    let id = QueryParams::parse(request.uri(), &[]).and_then(|_| workspace_id(request.uri()));
    let named = id.map(|id| (id, ()));
    state.respond(read(&state, owner, named, |used, ()| load_metadata(used)).await)
}

/// Handles a request without a body.
async fn read<Q: Send + 'static, T: Serialize>(
    state: &EngineState,
    owner: TokenName,
    asked: Result<(String, Q), EngineError>,
    call: impl FnOnce(&WorkspaceUse, Q) -> Result<T, EngineError> + Send + 'static,
) -> Result<Response, HttpError> {
    let (id, query) = asked?;
    let answer = state.run_blocking(move |service| {
        let used = service.enter(&owner, &id)?;
        Ok(response::json(StatusCode::OK, &call(&used, query)?))
    });
    answer.await
}

fn list_query(uri: &Uri) -> Result<(String, ListFilesQuery), EngineError> {
    let params = QueryParams::parse(uri, &["path", "depth", "limit", "cursor"])?;
    let PageQuery { limit, cursor } = PageQuery::of(&params)?;
    let depth = params.get("depth").map(|text| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let depth = is_number.then(|| text.parse().ok()).flatten().filter(|depth| *depth > 0);
        depth.ok_or_else(|| EngineError::invalid("depth", "want a whole number from 1"))
    });
    let path = params.get("path").unwrap_or(".").to_owned();
    let query = ListFilesQuery { path, depth: depth.transpose()?.unwrap_or(1), limit, cursor };
    Ok((workspace_id(uri)?, query))
}
