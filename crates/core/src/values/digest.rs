//! SHA-256 digests of bytes, streams and JSON values.

use std::fmt::Write as _;
use std::io::{self, Read};

use serde::Serialize;
use sha2::Digest as _;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 64 * 1024;

/// A SHA-256 computation in progress.
#[derive(Debug, Clone, Default)]
pub struct Digest(sha2::Sha256);

impl Digest {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest as 64 hexadecimal digits in lower case.
    pub fn finish(self) -> String {
        let mut text = String::with_capacity(64);
        for byte in self.0.finalize() {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// The SHA-256 of `bytes`, 64 hexadecimal digits.
pub fn sha256_of(bytes: &[u8]) -> String {
    let mut digest = Digest::default();
    digest.update(bytes);
    digest.finish()
}

/// The SHA-256 of all data in `source`, 64 hexadecimal digits.
///
/// # Errors
/// `source` could not be read.
pub fn sha256_of_all(mut source: impl Read) -> io::Result<String> {
    let mut digest = Digest::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(digest.finish()),
            Ok(count) => digest.update(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// `tag:` and the SHA-256 of `value` as canonical JSON (RFC 8785). The tag is the version of what
/// is hashed.
///
/// # Errors
/// `value` cannot be serialized as JSON.
pub fn tagged_hash(tag: &str, value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(format!("{tag}:{}", sha256_of(&serde_json_canonicalizer::to_vec(value)?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_digest_is_the_standard_one() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_of(b""), empty);
        assert_eq!(sha256_of_all(&b"abc"[..]).unwrap(), abc);
    }

    #[test]
    fn a_hash_does_not_depend_on_how_json_is_written() {
        let one = serde_json::from_str::<serde_json::Value>(r#"{"b": 1.0, "a": "é"}"#).unwrap();
        let same = tagged_hash("v1", &json!({"a": "\u{e9}", "b": 1})).unwrap();
        assert_eq!(tagged_hash("v1", &one).unwrap(), same);
        assert_eq!(same, format!("v1:{}", sha256_of("{\"a\":\"é\",\"b\":1}".as_bytes())));
    }
}
