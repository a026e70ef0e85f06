//! `GET /v1/jobs/{id}/artifacts/{path}`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::Response;

use super::path::{artifact_path, job_id};
use super::state::{JobsState, acquire, respond};
use crate::http::error::HttpError;
use crate::http::response::file_answer::FileAnswer;
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
    let (sha256, media_type) = (sha256.as_str().to_owned(), "application/octet-stream".to_owned());
    FileAnswer { file, bytes, sha256, media_type, headers: Vec::new() }.respond(head, permit)
}

/// Checks the file's length while the response can still be an error; later it could only be cut
/// off.
fn whole(open: OpenArtifact) -> Result<OpenArtifact, JobError> {
    let is_whole = open.file.metadata().is_ok_and(|file| file.len() >= open.bytes);
    let broken = || JobError::new(ErrorCode::IoFailed, "the artifact is no longer complete");
    if is_whole { Ok(open) } else { Err(broken()) }
}
