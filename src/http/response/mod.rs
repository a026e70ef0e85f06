//! Builds responses from values and files.

pub(crate) mod byte_range;
pub(crate) mod event_body;
mod event_lines;
pub(crate) mod file_answer;
pub(crate) mod file_pieces;
pub(crate) mod recorded_events;
pub(crate) mod sse;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;

/// Returns a text response.
pub fn text(status: StatusCode, body: &'static str) -> Response {
    with_type(status, "text/plain", body)
}

/// Returns a JSON response. All of our types serialize.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => with_type(status, "application/json", bytes),
        Err(_) => with_type(StatusCode::INTERNAL_SERVER_ERROR, "application/json", "{}"),
    }
}

fn with_type(status: StatusCode, mime: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(mime));
    response
}

/// Returns an error in the shape of `/run`.
pub fn error(status: StatusCode, words: &str) -> Response {
    #[derive(Serialize)]
    struct ErrorBody<'a> {
        error: &'a str,
    }
    json(status, &ErrorBody { error: words })
}
