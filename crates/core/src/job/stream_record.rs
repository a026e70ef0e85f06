//! Kept output as a record tells it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::Sha256;
use crate::CapturedStream;
use crate::values::digest::Digest;

/// One output stream: its beginning, and what is known of all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamRecord {
    /// What was kept: text, or base64 where it is not UTF-8. No character of it is cut in two.
    pub text: String,
    /// Whether more was written than is kept here.
    pub truncated: bool,
    /// Bytes written in all.
    pub bytes: u64,
    /// Of all bytes written, kept or not.
    pub sha256: Sha256,
    /// How `text` is to be read.
    pub encoding: TextEncoding,
}

/// How a kept text is to be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TextEncoding {
    /// As it is.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// Base64 of the bytes.
    #[serde(rename = "base64")]
    Base64,
}

impl StreamRecord {
    /// Of a stream of which `kept` is the beginning: text where that is UTF-8, less the part of a
    /// character that the cut has left, and base64 of every kept byte otherwise.
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

    /// Of a program that wrote nothing, or never ran.
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
    fn text_is_told_as_text_and_anything_else_without_loss() {
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
