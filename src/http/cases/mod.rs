//! `/v1/cases`: runs of Cases for HTTP clients.
//!
//! Calls of the service run on threads that may block ([`CasesState::run_blocking`]). Each acts for the token of
//! its request: runs of others are not found.

mod archive;
mod documents;
pub(crate) mod error;
mod events;
mod list_query;
mod path;
mod request;
pub(crate) mod settings;
pub(crate) mod state;
mod submit;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};

use self::path::run_id;
use self::state::{CasesState, respond};
use super::error::HttpError;
use super::request::access::token_name;
use super::response;
use crate::case::service::CaseRunsError;

/// Builds the routes.
pub fn routes<S>(state: Arc<CasesState>) -> Router<S> {
    Router::new()
        .route("/v1/cases", get(list).post(submit::submit))
        .route("/v1/cases/{id}", get(view))
        .route("/v1/cases/{id}/results", get(documents::results))
        .route("/v1/cases/{id}/junit.xml", get(documents::junit))
        .route("/v1/cases/{id}/report.html", get(documents::report))
        .route("/v1/cases/{id}/events", get(events::events))
        .route("/v1/cases/{id}/cancel", post(cancel))
        .with_state(state)
}

async fn list(State(state): State<Arc<CasesState>>, request: Request) -> Response {
    respond(try_list(&state, request).await)
}

async fn try_list(state: &CasesState, request: Request) -> Result<Response, HttpError> {
    let query = list_query::parse(request.uri().query().unwrap_or_default())?;
    let owner = token_name(request.extensions());
    let page = state.run_blocking(move |all| Ok(all.list(owner.as_str(), &query)?)).await?;
    Ok(response::json(StatusCode::OK, &page))
}

async fn view(State(state): State<Arc<CasesState>>, request: Request) -> Response {
    let (owner, id) = (token_name(request.extensions()), run_id(request.uri()));
    let viewed = state.run_blocking(move |all| Ok(all.view(owner.as_str(), &id)?)).await;
    respond(viewed.map(|view| response::json(StatusCode::OK, &view)))
}

async fn cancel(State(state): State<Arc<CasesState>>, request: Request) -> Response {
    let (owner, id) = (token_name(request.extensions()), run_id(request.uri()));
    let cancel = state.run_blocking(move |all| match all.cancel(owner.as_str(), &id)? {
        canceled if canceled.had_ended => Err(CaseRunsError::HasEnded.into()),
        canceled => Ok(canceled),
    });
    respond(cancel.await.map(|canceled| response::json(StatusCode::ACCEPTED, &canceled)))
}
