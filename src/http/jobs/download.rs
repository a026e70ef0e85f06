//! `GET /v1/jobs/{id}/artifacts/{path}`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame};

use super::byte_range::{ByteRange, fails_if_match, is_not_modified};
use super::file_pieces::FilePart;
use super::path::{artifact_path, job_id};
use super::state::{JobsState, acquire, respond};
use crate::http::error::HttpError;
use crate::http::server::connection::LazyBody;
use crate::job::OpenArtifact;
use cofferdam_core::job::{ErrorCode, JobError};

/// Sends an artifact or a part of it.
pub async fn download(State(state): State<Arc<JobsState>>, request: Request) -> Response {
    respond(try_download(&state, &request.into_parts().0).await)
}

async fn try_download(state: &JobsState, head: &Parts) -> Result<Response, HttpError> {
    let (id, path) = (job_id(&head.uri)?, artifact_path(&head.uri)?);
    let permit = acquire(&state.downloads, "downloads")?;
    let open = state.run_blocking(move |jobs| whole(jobs.open_artifact(&id, &path)?)).await?;
    let OpenArtifact { file, bytes, sha256 } = open;
    let etag = format!("\"{}\"", sha256.as_str());
    if fails_if_match(&head.headers, &etag) {
        return Err(HttpError::AnotherFile);
    }
    if is_not_modified(&head.headers, &etag) {
        return Ok(with_headers(StatusCode::NOT_MODIFIED, Body::new(UnsizedBody), &etag, &[]));
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
    let part = Body::new(FilePart::new(file, from, count, permit));
    let range = format!("bytes {from}-{}/{bytes}", (from + count).saturating_sub(1));
    let range = (status == StatusCode::PARTIAL_CONTENT).then_some((CONTENT_RANGE, range));
    let mut response = with_headers(status, part, &etag, range.as_slice());
    response.extensions_mut().insert(LazyBody);
    Ok(response)
}

/// Checks the file's length while the response can still be an error; later it could only be cut
/// off.
fn whole(open: OpenArtifact) -> Result<OpenArtifact, JobError> {
    let is_whole = open.file.metadata().is_ok_and(|file| file.len() >= open.bytes);
    let broken = || JobError::new(ErrorCode::IoFailed, "the artifact is no longer complete");
    if is_whole { Ok(open) } else { Err(broken()) }
}

/// Builds a response that makes browsers save the file instead of displaying it.
fn with_headers(
    status: StatusCode,
    body: Body,
    etag: &str,
    more: &[(HeaderName, String)],
) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let etag = (ETAG, etag.to_owned());
    for (name, value) in more.iter().chain([&etag]) {
        headers.extend(HeaderValue::try_from(value).ok().map(|value| (name.clone(), value)));
    }
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
