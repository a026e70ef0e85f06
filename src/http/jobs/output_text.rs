//! Output bytes as the data of an event: text if they are UTF-8, base64 otherwise. No byte is lost
//! or replaced, wherever the stream begins.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

/// The data of one event.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputText {
    /// UTF-8 text.
    Text(String),
    /// Bytes in base64.
    Base64(String),
}

/// Converts the beginning of `bytes`, and returns how many bytes that covers. Returns `None` if
/// there are only the first bytes of a character and the rest may come; `is_final` means that no more
/// will.
pub fn cut(bytes: &[u8], is_final: bool) -> Option<(usize, OutputText)> {
    // The rest of a character that began earlier, as after resuming inside it.
    let continuation = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    let rest = bytes.get(continuation..).unwrap_or_default();
    let text = text_at_start(rest);
    match text {
        Some("") if continuation == 0 && !is_final => None,
        Some("") if bytes.is_empty() => None,
        Some(text) if continuation == 0 && !text.is_empty() => {
            Some((text.len(), OutputText::Text(text.to_owned())))
        }
        Some(_) if continuation > 0 => Some(encoded(bytes, continuation)),
        _ => Some(encoded(bytes, bytes.len())),
    }
}

/// Returns `bytes` without an incomplete character at the end, if that is text.
fn text_at_start(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => {
            bytes.get(..error.valid_up_to()).and_then(|text| std::str::from_utf8(text).ok())
        }
        Err(_) => None,
    }
}

fn encoded(bytes: &[u8], count: usize) -> (usize, OutputText) {
    let bytes = bytes.get(..count).unwrap_or(bytes);
    (bytes.len(), OutputText::Base64(STANDARD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Option<(usize, OutputText)> {
        Some((text.len(), OutputText::Text(text.to_owned())))
    }

    fn base64(bytes: &[u8]) -> Option<(usize, OutputText)> {
        Some(encoded(bytes, bytes.len()))
    }

    #[test]
    fn utf8_is_sent_as_text() {
        for (bytes, is_final, expected) in [
            (&b""[..], false, None),
            (b"", true, None),
            (b"plain", false, text("plain")),
            ("é€".as_bytes(), false, text("é€")),
            // An incomplete character waits for its rest; if none comes, it is not text.
            (b"a\xE2\x82", false, text("a")),
            (b"a\xE2\x82", true, text("a")),
            (b"\xE2\x82", false, None),
            (b"\xE2\x82", true, base64(b"\xE2\x82")),
            // The rest of a character that began earlier.
            (b"\x82\xACa", false, base64(b"\x82\xAC")),
            (b"\xAC", false, base64(b"\xAC")),
            (b"\xAC\xE2\x82", false, base64(b"\xAC")),
            // Bytes that are not text.
            (b"a\xFFb", false, base64(b"a\xFFb")),
            (b"\xFF\xE2\x82", false, base64(b"\xFF\xE2\x82")),
            (b"\x80\x80\x80\x80", false, base64(b"\x80\x80\x80\x80")),
        ] {
            assert_eq!(cut(bytes, is_final), expected, "{bytes:x?} {is_final}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn pieces_hold_every_byte_once(
            bytes in proptest::collection::vec(any::<u8>(), 0..80), size in 4_usize..20,
        ) {
            let (mut at, mut joined) = (0, Vec::new());
            while at < bytes.len() {
                let end = bytes.len().min(at + size);
                let (count, piece) = cut(&bytes[at..end], end == bytes.len()).unwrap();
                prop_assert!((1..=end - at).contains(&count));
                match piece {
                    OutputText::Text(text) => joined.extend_from_slice(text.as_bytes()),
                    OutputText::Base64(text) => joined.extend(STANDARD.decode(text).unwrap()),
                }
                at += count;
            }
            prop_assert_eq!(joined, bytes);
        }
    }
}
