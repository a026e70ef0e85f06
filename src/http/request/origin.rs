//! Whether a browser's page may ask: it is the one client that acts for somebody who never chose to.
//!
//! A page of any origin can have its reader's browser post to an address that
//! only the reader reaches, and a name that is bound anew makes it read the
//! answer as well. Either way the browser says whose page it is.

use axum::extract::Request;
use axum::http::header::ORIGIN;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;

use crate::http::error::{Api, Refusal};

/// Refuses what a page of an origin outside `allowed` asks, its body unread.
/// What changes nothing is answered, but for what jobs have left: no page of another origin may
/// read it, and what it is not given it cannot find a way to read.
pub async fn check(allowed: &[String], request: Request, next: Next) -> Response {
    let api = Api::of(request.uri());
    let harmless = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
        && api == Api::Runs;
    if harmless || is_allowed(request.headers(), allowed) {
        next.run(request).await
    } else {
        Refusal::CrossOrigin.answer(api)
    }
}

/// Every `Origin` there is has to be one of `allowed`, to the byte.
pub fn is_allowed(headers: &HeaderMap, allowed: &[String]) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    origins.all(|origin| allowed.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()))
}
