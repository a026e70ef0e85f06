//! `/evaluate` and `/evaluations`: evaluations for HTTP clients.
//!
//! Calls of the service run on threads that may block ([`EvaluationsState::run_blocking`]). Each acts for the
//! token of its request: evaluations of others are not found.

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
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, LINK, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};

use self::path::{BATCH_PREFIX, EVALUATION_PREFIX, id_behind};
use self::state::{EvaluationsState, respond};
use super::error::HttpError;
use super::request::access::token_name;
use super::response;
use crate::config::TokenName;
use crate::evaluation::service::{EvaluationPage, Evaluations, EvaluationsError};

/// Builds the routes.
pub fn routes<S>(state: Arc<EvaluationsState>) -> Router<S> {
    Router::new()
        .route("/evaluate", post(submit::evaluate))
        .route("/evaluate/{id}", get(view).delete(cancel))
        .route("/evaluate/{id}/patch", get(patch))
        .route("/evaluate/{id}/junit.xml", get(junit))
        .route("/evaluate/{id}/events", get(events::events))
        .route("/evaluations", get(list))
        .route("/evaluations/batch", post(submit::batch))
        .route("/evaluations/batch/{id}", get(batch).delete(cancel_batch))
        .with_state(state)
}

/// What a request names: the token's name, and the id in its path.
fn named(request: &Request, prefix: &str) -> (TokenName, String) {
    (token_name(request.extensions()), id_behind(request.uri(), prefix))
}

/// Calls the service for what a request names.
async fn call<T: Send + 'static>(
    state: &EvaluationsState,
    (owner, id): (TokenName, String),
    call: impl FnOnce(&dyn Evaluations, &str, &str) -> Result<T, EvaluationsError> + Send + 'static,
) -> Result<T, HttpError> {
    state.run_blocking(move |all| call(all, owner.as_str(), &id)).await
}

async fn view(State(state): State<Arc<EvaluationsState>>, request: Request) -> Response {
    let viewed =
        call(&state, named(&request, EVALUATION_PREFIX), |all, owner, id| all.view(owner, id))
            .await;
    respond(viewed.map(json_text))
}

async fn cancel(State(state): State<Arc<EvaluationsState>>, request: Request) -> Response {
    let cancelled =
        call(&state, named(&request, EVALUATION_PREFIX), |all, owner, id| all.cancel(owner, id))
            .await;
    respond(cancelled.map(|cancelled| {
        let status = if cancelled.had_ended { StatusCode::OK } else { StatusCode::ACCEPTED };
        response::json(status, &cancelled)
    }))
}

async fn patch(State(state): State<Arc<EvaluationsState>>, request: Request) -> Response {
    let patch =
        call(&state, named(&request, EVALUATION_PREFIX), |all, owner, id| all.patch(owner, id))
            .await;
    respond(patch.map(|patch| saved("text/x-diff", patch)))
}

async fn junit(State(state): State<Arc<EvaluationsState>>, request: Request) -> Response {
    let junit =
        call(&state, named(&request, EVALUATION_PREFIX), |all, owner, id| all.junit(owner, id))
            .await;
    respond(junit.map(|junit| saved("application/xml", junit)))
}

async fn list(State(state): State<Arc<EvaluationsState>>, request: Request) -> Response {
    respond(try_list(&state, request).await)
}

async fn try_list(state: &EvaluationsState, request: Request) -> Result<Response, HttpError> {
    let asked = list_query::parse(request.uri().query().unwrap_or_default())?;
    let (owner, query) = (token_name(request.extensions()), asked.clone());
    let page = state.run_blocking(move |all| all.list(owner.as_str(), &query)).await?;
    let EvaluationPage { json, next_cursor } = page;
    let mut response = json_text(json);
    let link = next_cursor.map(|cursor| list_query::next_link(&asked, &cursor));
    let link = link.and_then(|link| HeaderValue::try_from(link).ok());
    response.headers_mut().extend(link.map(|link| (LINK, link)));
    Ok(response)
}

async fn batch(State(state): State<Arc<EvaluationsState>>, request: Request) -> Response {
    let batch =
        call(&state, named(&request, BATCH_PREFIX), |all, owner, id| all.batch(owner, id)).await;
    respond(batch.map(json_text))
}

async fn cancel_batch(State(state): State<Arc<EvaluationsState>>, request: Request) -> Response {
    let batch =
        call(&state, named(&request, BATCH_PREFIX), |all, owner, id| all.cancel_batch(owner, id))
            .await;
    respond(batch.map(json_text))
}

fn json_text(text: String) -> Response {
    typed("application/json", text)
}

/// What programs made: browsers save it instead of displaying it.
fn saved(mime: &'static str, body: impl Into<Body>) -> Response {
    let mut response = typed(mime, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn typed(mime: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(mime));
    response
}
