//! `W/network` and `W/egress`: what programs may reach, and what they asked for.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use crate::http::engine::page::PageQuery;
use crate::http::engine::query::{QueryParams, workspace_id};
use crate::http::engine::state::EngineState;
use crate::http::error::HttpError;
use crate::http::request::access::token_name;
use crate::http::response;
use crate::workspace::{EgressPage, EngineError};
use cofferdam_core::NetworkObject;
use cofferdam_core::json::parse_object;

/// Shows what programs may reach.
pub async fn view(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let owner = token_name(request.extensions());
    let viewed = named(request.uri(), &[])
        .and_then(|(id, _)| state.service().network(&owner, &id))
        .map(|network| response::json(StatusCode::OK, &network));
    state.respond(viewed.map_err(HttpError::from))
}

/// Lets programs reach something else.
pub async fn replace(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    state.respond(try_replace(&state, request).await)
}

async fn try_replace(state: &EngineState, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    let (id, _) = named(&head.uri, &[])?;
    let owner = token_name(&head.extensions);
    let body = state.read(&head.headers, body).await?;
    let replaced = state.run_blocking(move |service| {
        let network: NetworkObject = parse_object(&body).map_err(EngineError::from)?;
        Ok(service.replace_network(&owner, &id, network)?)
    });
    Ok(response::json(StatusCode::OK, &replaced.await?))
}

/// Lists what programs asked for.
pub async fn records(State(state): State<Arc<EngineState>>, request: Request) -> Response {
    let found = try_records(&state, &request);
    let found = found.map(|page| response::json(StatusCode::OK, &page));
    state.respond(found.map_err(HttpError::from))
}

/// It only looks at a table in memory.
fn try_records(state: &EngineState, request: &Request) -> Result<EgressPage, EngineError> {
    let (id, params) = named(request.uri(), &["limit", "cursor"])?;
    let page = PageQuery::of(&params)?;
    let owner = token_name(request.extensions());
    state.service().egress(&owner, &id, page.limit, page.number()?)
}

fn named(uri: &Uri, known: &[&str]) -> Result<(String, QueryParams), EngineError> {
    Ok((workspace_id(uri)?, QueryParams::parse(uri, known)?))
}
