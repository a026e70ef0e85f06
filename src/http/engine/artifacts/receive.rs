//! Receives the bytes of a version, with one piece in memory at a time.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::state::ArtifactsState;
use crate::http::error::HttpError;
use crate::workspace::artifacts::ArtifactUpload;

/// The size of a piece that is written at once, bytes.
const PIECE_BYTES: usize = 256 << 10;
/// A client that has sent this many bytes has earned another second, bytes.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// Writes `body` to `upload`. A client that sends too slowly is refused.
pub async fn receive(
    state: &ArtifactsState,
    mut body: Body,
    mut upload: ArtifactUpload,
) -> Result<ArtifactUpload, HttpError> {
    let began = Instant::now();
    let mut ended = false;
    while !ended {
        let earned = Duration::from_secs(upload.bytes() / BYTES_PER_SECOND_MIN);
        let deadline = began + state.body_within + earned;
        let mut piece = Vec::new();
        while piece.len() < PIECE_BYTES {
            let frame = timeout_at(deadline, body.frame()).await;
            let Some(frame) = frame.map_err(|_| HttpError::BodyLate)? else {
                ended = true;
                break;
            };
            let frame = frame.map_err(|_| HttpError::BodyIncomplete)?;
            piece.extend_from_slice(&frame.into_data().unwrap_or_default());
            // Before the piece is full: the client may wait for the answer.
            upload.check(piece.len())?;
        }
        upload = state
            .run_blocking(move |_| {
                upload.write(&piece)?;
                Ok(upload)
            })
            .await?;
    }
    Ok(upload)
}
