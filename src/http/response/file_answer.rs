//! Sends a file or a part of it, as `Range` and the conditions of a request ask.

use std::convert::Infallible;
use std::fs::File;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame};
use tokio::sync::OwnedSemaphorePermit;

use super::byte_range::{ByteRange, fails_if_match, is_not_modified};
use super::file_pieces::FilePart;
use crate::http::error::HttpError;
use crate::http::server::connection::LazyBody;

/// A file to send.
#[derive(Debug)]
pub struct FileAnswer {
    /// The file.
    pub file: File,
    /// How many bytes of it, from its beginning.
    pub bytes: u64,
    /// Their SHA-256, the entity tag.
    pub sha256: String,
    /// Their media type; if it cannot be a header, that of bytes.
    pub media_type: String,
    /// More headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl FileAnswer {
    /// The answer to the GET or HEAD with this head. The permit is held while the file is open.
    ///
    /// # Errors
    /// `If-Match` excludes the file, or no byte of it is in the range.
    pub fn respond(
        self,
        head: &Parts,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response, HttpError> {
        let Self { file, bytes, sha256, media_type, mut headers } = self;
        let etag = format!("\"{sha256}\"");
        if fails_if_match(&head.headers, &etag) {
            return Err(HttpError::AnotherFile);
        }
        let media_type = HeaderValue::try_from(media_type)
            .unwrap_or(HeaderValue::from_static("application/octet-stream"));
        headers.push((CONTENT_TYPE, media_type));
        headers.extend(HeaderValue::try_from(&etag).ok().map(|etag| (ETAG, etag)));
        if is_not_modified(&head.headers, &etag) {
            return Ok(with_headers(StatusCode::NOT_MODIFIED, Body::new(UnsizedBody), headers));
        }
        // `Range` applies to GET only; HEAD describes the whole file.
        let wanted = match head.method {
            Method::HEAD => ByteRange::Whole,
            _ => ByteRange::of(&head.headers, &etag, bytes),
        };
        let (status, from, count) = match wanted {
            ByteRange::Whole => (StatusCode::OK, 0, bytes),
            ByteRange::Part { from, bytes } => (StatusCode::PARTIAL_CONTENT, from, bytes),
            ByteRange::Unsatisfiable => return Err(HttpError::Range(bytes)),
        };
        if status == StatusCode::PARTIAL_CONTENT {
            let range = format!("bytes {from}-{}/{bytes}", (from + count).saturating_sub(1));
            headers.extend(HeaderValue::try_from(range).ok().map(|range| (CONTENT_RANGE, range)));
        }
        let part = Body::new(FilePart::new(file, from, count, permit));
        let mut response = with_headers(status, part, headers);
        response.extensions_mut().insert(LazyBody);
        Ok(response)
    }
}

/// Builds a response that makes browsers save the file instead of displaying it.
fn with_headers(status: StatusCode, body: Body, more: Vec<(HeaderName, HeaderValue)>) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.extend(more);
    response
}

/// An empty body of unknown length: the `Content-Length` of a 304 would have to be the file's.
struct UnsizedBody;

impl HttpBody for UnsizedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }
}
