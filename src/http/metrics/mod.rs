//! `GET /metrics`: metrics of the service, of the HTTP server and of this process.

mod cases;
pub(crate) mod counts;
mod evaluations;
mod families;
mod process;
pub(crate) mod registry;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};

use super::error::HttpError;
use super::request::access::{self, PublicView};
use super::server::app_state::AppState;

/// Answers a scrape. Refuses pages of other origins, whatever the method.
pub async fn answer(
    State(state): State<Arc<AppState>>,
    public: Option<Extension<PublicView>>,
    headers: HeaderMap,
) -> Response {
    if !access::is_origin_allowed(&headers, &state.origins_allow) {
        return HttpError::CrossOrigin.into_response();
    }
    match state.metrics.text(&headers, public.is_some()) {
        Ok((text, mime)) => {
            let mut response = Response::new(text.into());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(mime));
            response
        }
        Err(error) => {
            log::error!("metrics: {error}");
            HttpError::Internal.into_response()
        }
    }
}
