//! Bytes in JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::workspace::error::EngineError;
use cofferdam_core::job::TextEncoding;

/// The bytes of the field `path`, which is written in `encoding`.
///
/// # Errors
/// It is not base64.
pub fn decode(encoding: TextEncoding, path: &str, text: String) -> Result<Vec<u8>, EngineError> {
    match encoding {
        TextEncoding::Utf8 => Ok(text.into_bytes()),
        TextEncoding::Base64 => {
            STANDARD.decode(text).map_err(|_| EngineError::invalid(path, "is not base64"))
        }
    }
}

/// The bytes as text if they are text, otherwise in base64.
pub fn encode(bytes: Vec<u8>) -> (TextEncoding, String) {
    match String::from_utf8(bytes) {
        Ok(text) => (TextEncoding::Utf8, text),
        Err(error) => (TextEncoding::Base64, STANDARD.encode(error.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_after_both_ways() {
        for (bytes, encoding, text) in [
            (&b""[..], TextEncoding::Utf8, ""),
            ("é".as_bytes(), TextEncoding::Utf8, "é"),
            (b"\xFF\xE0", TextEncoding::Base64, "/+A="),
        ] {
            assert_eq!(encode(bytes.to_vec()), (encoding, text.to_owned()));
            assert_eq!(decode(encoding, "x", text.to_owned()), Ok(bytes.to_vec()));
        }
        let error = decode(TextEncoding::Base64, "files[1].content", "?".to_owned()).unwrap_err();
        assert_eq!(error.details["path"], "files[1].content");
    }
}
