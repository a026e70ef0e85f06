//! `POST /v1/helpers/{name}`: the engine's helpers for HTTP clients.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use tokio::task::spawn_blocking;

use super::query::QueryParams;
use crate::http::error::{HttpApi, HttpError};
use crate::http::request::body::{BodyReader, check_encoding};
use crate::http::request::percent_decode;
use crate::http::response;
use crate::workspace::helpers::Helper;
use crate::workspace::{EngineCode, EngineError};

const HELPERS: &str = "/v1/helpers/";

/// The state of the route.
#[derive(Debug)]
pub struct HelpersState {
    /// The maximum size of a request in bytes.
    pub input_bytes_max: u64,
    /// Reads request bodies.
    pub bodies: BodyReader,
}

/// Builds the route.
pub fn routes<S>(state: Arc<HelpersState>) -> Router<S> {
    Router::new().route("/v1/helpers/{name}", post(call)).with_state(state)
}

async fn call(State(state): State<Arc<HelpersState>>, request: Request) -> Response {
    let answer = try_call(&state, request).await;
    answer.unwrap_or_else(|refusal| refusal.answer(HttpApi::Jobs))
}

async fn try_call(state: &HelpersState, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    // None of these uses a directory of the host.
    let name = head.uri.path().strip_prefix(HELPERS).and_then(percent_decode);
    let helper = name.and_then(|name| Helper::pure(&name)).ok_or(HttpError::NotFound)?;
    QueryParams::parse(&head.uri, &[])?;
    check_encoding(&head.headers)?;
    let bytes_max = state.input_bytes_max;
    let body = state.bodies.read(body, Some(bytes_max)).await.map_err(|refusal| match refusal {
        HttpError::PayloadTooLarge => {
            let error = EngineError::new(EngineCode::TooLarge, refusal.to_string());
            error.with("bytes_max", bytes_max).into()
        }
        other => other,
    })?;
    let answer = spawn_blocking(move || helper.call(&body)).await;
    let answer = answer.map_err(|_| HttpError::Internal)??;
    Ok(response::json(StatusCode::OK, &answer))
}
