//! `/v1/workspaces` and `/v1/workspaces/{id}`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::idempotency::RequestKey;
use super::kept_answers::KeptAnswer;
use super::page::PageQuery;
use super::query::{QueryParams, WORKSPACES, workspace_id};
use super::state::{EngineState, parse};
use crate::http::error::HttpError;
use crate::http::request::access::token_name;
use crate::http::response;
use crate::workspace::{CreateRequest, EngineError, PatchRequest, WorkspaceQuery, WorkspaceStatus};

/// Creates or acquires a workspace.
pub async fn create(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    state.respond(try_create(&state, request).await)
}

async fn try_create(state: &EngineState, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    QueryParams::parse(&head.uri, &[])?;
    let key = RequestKey::of(&head)?;
    let body = state.read(&head.headers, body).await?;
    let answers = state.answers.clone();
    let answer = state.run_blocking(move |service| {
        key.once(&answers, &body, || {
            let request: CreateRequest = parse(&body)?;
            let (view, is_new) = service.create(key.owner(), request)?;
            let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
            let location = format!("{WORKSPACES}{}", view.workspace_id());
            Ok(KeptAnswer::json(status, &view).at(location))
        })
    });
    Ok(answer.await?.into_response())
}

/// Lists the caller's workspaces.
pub async fn list(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let listed = match list_query(request.uri()) {
        Ok(query) => {
            let owner = token_name(request.extensions());
            state.run_blocking(move |service| ok(service.list(&owner, &query))).await
        }
        Err(error) => Err(error.into()),
    };
    state.respond(listed)
}

fn list_query(uri: &Uri) -> Result<WorkspaceQuery, EngineError> {
    let params = QueryParams::parse(uri, &["exec_id", "status", "limit", "cursor"])?;
    let page = PageQuery::of(&params)?;
    let status = params.get("status").map(|word| {
        let status = WorkspaceStatus::parse(word);
        status.ok_or_else(|| EngineError::invalid("status", "want active or parked"))
    });
    Ok(WorkspaceQuery {
        exec_id: params.get("exec_id").map(str::to_owned),
        status: status.transpose()?,
        limit: page.limit,
        before: page.number()?,
    })
}

/// Shows a workspace, which is no use of it.
pub async fn view(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let owner = token_name(request.extensions());
    let viewed = match named(request.uri(), &[]) {
        Ok((id, _)) => state.run_blocking(move |service| ok(service.view(&owner, &id))).await,
        Err(error) => Err(error.into()),
    };
    state.respond(viewed)
}

/// Changes how long a workspace lives.
pub async fn patch(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    state.respond(try_patch(&state, request).await)
}

async fn try_patch(state: &EngineState, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    let (id, _) = named(&head.uri, &[])?;
    let owner = token_name(&head.extensions);
    let body = state.read(&head.headers, body).await?;
    let patched = state.run_blocking(move |service| {
        let request: PatchRequest = parse(&body)?;
        ok(service.patch(&owner, &id, &request))
    });
    patched.await
}

/// Writes the files of a workspace to the store.
pub async fn save(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    state.respond(try_save(&state, request).await)
}

async fn try_save(state: &EngineState, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    let (id, _) = named(&head.uri, &[])?;
    let owner = token_name(&head.extensions);
    let body = state.read(&head.headers, body).await?;
    let saved = state.run_blocking(move |service| {
        if !body.is_empty() {
            parse::<SaveRequest>(&body)?;
        }
        ok(service.save(&owner, &id))
    });
    saved.await
}

/// The body of `POST W/save`, which may be missing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SaveRequest {}

/// Kills everything in a workspace, and removes or parks it.
pub async fn cleanup(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let owner = token_name(request.extensions());
    let cleaned = match named(request.uri(), &["purge"]) {
        Ok((id, params)) => match params.flag("purge") {
            Ok(purge) => {
                state.run_blocking(move |service| ok(service.cleanup(&owner, &id, purge))).await
            }
            Err(error) => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    };
    state.respond(cleaned)
}

fn named(uri: &Uri, known: &[&str]) -> Result<(String, QueryParams), EngineError> {
    Ok((workspace_id(uri)?, QueryParams::parse(uri, known)?))
}

fn ok(answer: Result<impl Serialize, EngineError>) -> Result<Response, HttpError> {
    Ok(response::json(StatusCode::OK, &answer?))
}
