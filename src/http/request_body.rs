//! A request's body: bounded in bytes and in time, and whole or refused.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::time::timeout;

use super::refusal::Refusal;

/// The most room made for a body before its bytes are there.
const ROOM_BYTES_MAX: u64 = 64 * 1024;

/// Refuses every coding but `identity`, which is none.
pub fn check_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let plain = codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    if plain { Ok(()) } else { Err(Refusal::ContentEncoding) }
}

/// The whole body. One that announces more than `bytes_max` is refused unread,
/// so that a client waiting for `100 Continue` sends none of it.
pub async fn read(
    body: Body,
    bytes_max: Option<u64>,
    within: Duration,
) -> Result<Vec<u8>, Refusal> {
    let bytes_max = bytes_max.unwrap_or(u64::MAX);
    let announced = body.size_hint().lower();
    if announced > bytes_max {
        return Err(Refusal::PayloadTooLarge);
    }
    let whole = timeout(within, collect(body, announced, bytes_max)).await;
    whole.unwrap_or(Err(Refusal::BodyLate))
}

async fn collect(mut body: Body, announced: u64, bytes_max: u64) -> Result<Vec<u8>, Refusal> {
    let room = usize::try_from(announced.min(ROOM_BYTES_MAX)).unwrap_or_default();
    let mut whole = Vec::with_capacity(room);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::BodyIncomplete)?;
        let data: Bytes = frame.into_data().unwrap_or_default();
        if (whole.len() as u64).saturating_add(data.len() as u64) > bytes_max {
            return Err(Refusal::PayloadTooLarge);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole)
}
