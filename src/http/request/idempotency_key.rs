//! The `Idempotency-Key` of a request.

use std::fmt;

use axum::http::{HeaderMap, HeaderName};

/// The name of the header, as errors give it.
pub const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// The header with the client's own name for its request.
const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
/// The maximum length of the key in bytes.
const KEY_BYTES_MAX: usize = 255;

/// The header occurs twice, or is empty, too long, or holds other than visible ASCII characters.
#[derive(Debug)]
pub struct InvalidIdempotencyKey;

impl fmt::Display for InvalidIdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "want one, of 1 to {KEY_BYTES_MAX} visible characters of ASCII")
    }
}

/// Returns the key of a request with these headers, if it has one.
///
/// # Errors
/// The header is invalid.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, InvalidIdempotencyKey> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let bytes = value.as_bytes();
    let is_key = (1..=KEY_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(u8::is_ascii_graphic)
        && values.next().is_none();
    let key = is_key.then(|| value.to_str().map(str::to_owned).ok()).flatten();
    key.map(Some).ok_or(InvalidIdempotencyKey)
}
