//! The `Idempotency-Key` of a request.

use std::fmt;
use std::sync::LazyLock;

use axum::http::{HeaderMap, HeaderName};
use cofferdam_core::values::digest::sha256_of;
use uuid::Uuid;
use zeroize::Zeroizing;

/// The name of the header, as errors give it.
pub const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// The header with the client's own name for its request.
const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
/// The maximum length of the key in bytes.
const KEY_BYTES_MAX: usize = 255;

/// The key of digests that must not tell what they are of. It is in memory alone.
static DIGEST_KEY: LazyLock<[[u8; 16]; 2]> =
    LazyLock::new(|| [Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes));

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

/// What tells whether a key came with the same body before. For a body that may hold a secret it depends on
/// a key that this process alone has, so that no digest of a secret is stored.
pub fn body_digest(body: &[u8]) -> String {
    let holds = |part: &[u8]| body.windows(part.len()).any(|window| window == part);
    if holds(b"\"secrets\"") || holds(b"\\u") {
        return sha256_of(&Zeroizing::new([DIGEST_KEY.as_flattened(), body].concat()));
    }
    sha256_of(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_body_with_secrets_tells_nothing_of_it() {
        let plain = br#"{"command":{}}"#;
        assert_eq!(body_digest(plain), sha256_of(plain));
        for body in [&br#"{"secrets":{"a":{"value":"12345678"}}}"#[..], br#"{"secr\u0065ts":{}}"#] {
            assert_ne!(body_digest(body), sha256_of(body));
            assert_eq!(body_digest(body), body_digest(body));
        }
    }
}
