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

use super::byte_range::{Wanted, has_already, wants_another};
use super::file_pieces::FilePart;
use super::{JobsFront, answered, artifact_path, job_id, place_of};
use crate::http::error::Refusal;
use crate::http::server::connection::InPieces;
use crate::job::OpenArtifact;
use cofferdam_core::job::{ErrorCode, JobError};

/// Sends one artifact, or a part of it.
pub async fn download(State(front): State<Arc<JobsFront>>, request: Request) -> Response {
    answered(try_download(&front, &request.into_parts().0).await)
}

async fn try_download(front: &JobsFront, head: &Parts) -> Result<Response, Refusal> {
    let (id, path) = (job_id(&head.uri)?, artifact_path(&head.uri)?);
    let place = place_of(&front.downloads, "downloads")?;
    let open = front.ask(move |jobs| whole(jobs.open_artifact(&id, &path)?)).await?;
    let OpenArtifact { file, bytes, sha256 } = open;
    let etag = format!("\"{}\"", sha256.as_str());
    if wants_another(&head.headers, &etag) {
        return Err(Refusal::AnotherFile);
    }
    if has_already(&head.headers, &etag) {
        return Ok(with_headers(StatusCode::NOT_MODIFIED, Body::new(NoLength), &etag, &[]));
    }
    // A range is a part of what GET sends, and HEAD tells of the whole.
    let wanted = match head.method {
        Method::HEAD => Wanted::Whole,
        _ => Wanted::of(&head.headers, &etag, bytes),
    };
    let (status, from, count) = match wanted {
        Wanted::Whole => (StatusCode::OK, 0, bytes),
        Wanted::Part { from, bytes } => (StatusCode::PARTIAL_CONTENT, from, bytes),
        Wanted::Beyond => return Err(Refusal::Range(bytes)),
    };
    let part = Body::new(FilePart::new(file, from, count, place));
    let range = format!("bytes {from}-{}/{bytes}", (from + count).saturating_sub(1));
    let range = (status == StatusCode::PARTIAL_CONTENT).then_some((CONTENT_RANGE, range));
    let mut response = with_headers(status, part, &etag, range.as_slice());
    response.extensions_mut().insert(InPieces);
    Ok(response)
}

/// Told while an answer can still say so: later it could only break off.
fn whole(open: OpenArtifact) -> Result<OpenArtifact, JobError> {
    let is_whole = open.file.metadata().is_ok_and(|file| file.len() >= open.bytes);
    let broken = || JobError::new(ErrorCode::IoFailed, "the artifact is not whole any more");
    if is_whole { Ok(open) } else { Err(broken()) }
}

/// Whatever a browser is made to open here, it keeps and does not look into.
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

/// No body, of a length that is not told: a 304 may tell that of the file alone.
struct NoLength;

impl HttpBody for NoLength {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }
}
