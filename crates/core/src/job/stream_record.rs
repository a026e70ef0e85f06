//! Output streams in a job's result.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::Sha256;
use crate::CapturedStream;
use crate::values::digest::Digest;

/// One output stream: its beginning, and the size and digest of the whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamRecord {
    /// The kept part: text, or base64 if it is not UTF-8. No character is cut in two.
    pub text: String,
    /// Whether more was written than is kept.
    pub truncated: bool,
    /// Bytes written, kept or not.
    pub bytes: u64,
    /// The digest of all bytes written, kept or not.
    pub sha256: Sha256,
    /// The encoding of `text`.
    pub encoding: TextEncoding,
}

/// The encoding of a kept text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TextEncoding {
    /// Plain text.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// Base64 of the bytes.
    #[serde(rename = "base64")]
    Base64,
}

impl StreamRecord {
    /// The record of a stream that starts with `kept`. The text drops an incomplete character at a
    /// cut; base64 has every kept byte.
    pub fn of(kept: Vec<u8>, bytes_total: u64, sha256: Sha256) -> Self {
        let truncated = bytes_total > kept.len() as u64;
        let captured = CapturedStream { bytes: kept, bytes_total, truncated };
        let whole = captured.whole_characters();
        let (text, encoding) = match std::str::from_utf8(whole) {
            Ok(text) => (text.to_owned(), TextEncoding::Utf8),
            Err(_) => (BASE64_STANDARD.encode(&captured.bytes), TextEncoding::Base64),
        };
        Self { text, truncated, bytes: bytes_total, sha256, encoding }
    }

    /// The record of an empty stream.
    pub fn empty() -> Self {
        Self::of(Vec::new(), 0, Sha256::from_digest(Digest::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kept: &[u8], bytes_total: u64) -> StreamRecord {
        StreamRecord::of(kept.to_vec(), bytes_total, StreamRecord::empty().sha256)
    }

    #[test]
    fn text_stays_text_and_other_bytes_are_kept_without_loss() {
        for (kept, total, text, encoding) in [
            (&b"abc"[..], 3, "abc", TextEncoding::Utf8),
            ("né".as_bytes(), 3, "né", TextEncoding::Utf8),
            // A cut inside a character.
            (b"n\xC3", 9, "n", TextEncoding::Utf8),
            // The same bytes where nothing was cut.
            (b"n\xC3", 2, "bsM=", TextEncoding::Base64),
            (b"\xFF", 1, "/w==", TextEncoding::Base64),
            (b"\xFFn\xC3", 9, "/27D", TextEncoding::Base64),
        ] {
            let record = record(kept, total);
            assert_eq!((record.text.as_str(), record.encoding), (text, encoding), "{kept:?}");
            assert_eq!(record.truncated, total > kept.len() as u64);
        }
    }
}
