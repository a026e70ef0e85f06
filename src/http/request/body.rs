//! Reads request bodies within limits on size and time.

use std::ops::Deref;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::wiped;
use crate::http::error::HttpError;
use crate::http::server::body_budget::{BodyBudget, BodyReservation};

/// The least reserved for the first bytes of a body, unless it announces less.
const CAPACITY_MIN: u64 = 16 * 1024;

/// Reads request bodies.
#[derive(Debug, Clone)]
pub struct BodyReader {
    /// The time limit, from the end of the head to the end of the body.
    pub within: Duration,
    /// The memory that all bodies share.
    pub budget: BodyBudget,
}

/// A complete body, which may have secrets in it and is overwritten when it is dropped. Holds its reservation
/// until then.
#[derive(Debug)]
pub struct WholeBody {
    bytes: Zeroizing<Vec<u8>>,
    _reservation: BodyReservation,
}

impl Deref for WholeBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Refuses every content coding except `identity`.
pub fn check_encoding(headers: &HeaderMap) -> Result<(), HttpError> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let plain = codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    if plain { Ok(()) } else { Err(HttpError::ContentEncoding) }
}

impl BodyReader {
    /// Reads the whole body. Refuses a body that announces more than `bytes_max` unread, so that a
    /// client waiting for `100 Continue` sends none of it.
    pub async fn read(&self, body: Body, bytes_max: Option<u64>) -> Result<WholeBody, HttpError> {
        let bytes_max = bytes_max.unwrap_or(u64::MAX);
        let announced = body.size_hint().lower();
        if announced > bytes_max {
            return Err(HttpError::PayloadTooLarge);
        }
        let reservation = self.budget.enter(Instant::now());
        let collecting = collect(body, announced, bytes_max, &reservation);
        let whole = timeout(self.within, reservation.unless_evicted(collecting)).await;
        let bytes = whole.map_err(|_| HttpError::BodyLate)?.ok_or(HttpError::NoRoomForBody)??;
        reservation.mark_complete();
        Ok(WholeBody { bytes, _reservation: reservation })
    }
}

async fn collect(
    mut body: Body,
    announced: u64,
    bytes_max: u64,
    reservation: &BodyReservation,
) -> Result<Zeroizing<Vec<u8>>, HttpError> {
    let mut whole: Zeroizing<Vec<u8>> = Zeroizing::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| HttpError::BodyIncomplete)?;
        let data: Bytes = frame.into_data().unwrap_or_default();
        let length = (whole.len() as u64).saturating_add(data.len() as u64);
        if length > bytes_max {
            return Err(HttpError::PayloadTooLarge);
        }
        if length > whole.capacity() as u64 {
            let capacity = grown(whole.capacity(), length, announced);
            reservation.reserve(capacity).await;
            wiped::grow(&mut whole, capacity);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole)
}

/// Returns the capacity for `length` bytes: twice `reservation`, but not more than `announced`.
fn grown(reservation: usize, length: u64, announced: u64) -> usize {
    let twice = (reservation as u64).saturating_mul(2).max(CAPACITY_MIN);
    let most = if length <= announced { twice.min(announced) } else { twice };
    usize::try_from(most.max(length)).unwrap_or(usize::MAX)
}
