//! How a secret is written in answers: as it is, with escapes of URLs and of JSON, in base64.

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// What encoders of URLs keep beside letters and digits: those of RFC 3986, of parts of paths, of forms,
/// and the functions of JavaScript.
const KEPT: [&[u8]; 6] = [b"-._~", b"-._~/", b"*-._", b"-._~!'()*", b"-._~!'()*;,/?:@&=+$#", b""];
const DIGITS_UPPER: &[u8; 16] = b"0123456789ABCDEF";
const DIGITS_LOWER: &[u8; 16] = b"0123456789abcdef";

/// What an encoder of JSON escapes beside `"` and `\`.
#[derive(Debug, Clone, Copy)]
struct JsonEscapes {
    slash: bool,
    /// Escapes characters beyond ASCII, with these hexadecimal digits.
    unicode: Option<&'static [u8; 16]>,
    /// What is ASCII and written as `\uXXXX` all the same.
    units: &'static str,
}

const JSON_ESCAPES: [JsonEscapes; 9] = [
    JsonEscapes { slash: false, unicode: None, units: "" },
    JsonEscapes { slash: true, unicode: None, units: "" },
    JsonEscapes { slash: false, unicode: Some(DIGITS_LOWER), units: "" },
    JsonEscapes { slash: false, unicode: Some(DIGITS_UPPER), units: "" },
    JsonEscapes { slash: true, unicode: Some(DIGITS_LOWER), units: "" },
    // For HTML, as Go and others write it, and Gson.
    JsonEscapes { slash: false, unicode: None, units: "<>&'" },
    JsonEscapes { slash: false, unicode: None, units: "<>&'=" },
    JsonEscapes { slash: false, unicode: Some(DIGITS_UPPER), units: "<>&'" },
    // The default of .NET.
    JsonEscapes { slash: false, unicode: Some(DIGITS_UPPER), units: "<>&'\"+`" },
];

/// All ways to write `secret`, each once.
pub fn spellings(secret: &str) -> Vec<Zeroizing<Vec<u8>>> {
    let mut all: Vec<Zeroizing<Vec<u8>>> = vec![Zeroizing::new(secret.as_bytes().to_vec())];
    let mut add = |spelling: Zeroizing<Vec<u8>>| {
        if !all.contains(&spelling) {
            all.push(spelling);
        }
    };
    for digits in [DIGITS_UPPER, DIGITS_LOWER] {
        for kept in KEPT {
            let keeps = |byte: u8| byte.is_ascii_alphanumeric() || kept.contains(&byte);
            add(percent(secret, digits, keeps, false));
            add(percent(secret, digits, keeps, true));
        }
        add(percent(secret, digits, |_| false, false));
    }
    JSON_ESCAPES.into_iter().for_each(|escapes| add(json(secret, escapes)));
    for offset in 0..3 {
        add(base64_at(secret, offset, &STANDARD_NO_PAD));
        add(base64_at(secret, offset, &URL_SAFE_NO_PAD));
    }
    all
}

fn percent(
    secret: &str,
    digits: &[u8; 16],
    keeps: impl Fn(u8) -> bool,
    space_is_plus: bool,
) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(secret.len() * 3));
    for byte in secret.bytes() {
        if byte == b' ' && space_is_plus {
            out.push(b'+');
        } else if keeps(byte) {
            out.push(byte);
        } else {
            out.push(b'%');
            out.extend(hexadecimal(byte, digits));
        }
    }
    out
}

fn hexadecimal(byte: u8, digits: &[u8; 16]) -> [u8; 2] {
    let digit = |value: u8| digits.get(usize::from(value)).copied().unwrap_or_default();
    [digit(byte >> 4), digit(byte & 0xf)]
}

fn json(secret: &str, escapes: JsonEscapes) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(secret.len() * 6));
    for character in secret.chars() {
        let digits = match (character, escapes.unicode) {
            (_, digits) if escapes.units.contains(character) => {
                Some(digits.unwrap_or(DIGITS_LOWER))
            }
            (_, digits) if !character.is_ascii() => digits,
            _ => None,
        };
        let is_escaped = matches!(character, '"' | '\\') || character == '/' && escapes.slash;
        match digits {
            Some(digits) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let [high, low] = unit.to_be_bytes().map(|byte| hexadecimal(byte, digits));
                    out.extend([[b'\\', b'u'], high, low].concat());
                }
            }
            None => {
                out.extend(is_escaped.then_some(b'\\'));
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
    out
}

/// The characters that are the same wherever `secret` stands behind `offset` other bytes of a group of
/// three.
fn base64_at(secret: &str, offset: usize, engine: &GeneralPurpose) -> Zeroizing<Vec<u8>> {
    let mut shifted = Zeroizing::new(Vec::with_capacity(offset + secret.len()));
    shifted.extend(std::iter::repeat_n(0, offset));
    shifted.extend_from_slice(secret.as_bytes());
    let encoded = Zeroizing::new(engine.encode(&shifted));
    let (first, end) = ((offset * 8).div_ceil(6), shifted.len() * 8 / 6);
    Zeroizing::new(encoded.as_bytes().get(first..end).unwrap_or_default().to_vec())
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::*;

    fn has(secret: &str, spelling: &str) -> bool {
        spellings(secret).iter().any(|known| known.as_slice() == spelling.as_bytes())
    }

    #[test]
    fn a_plain_secret_has_its_text_and_base64_alone() {
        let all = spellings("sk-abcdef");
        // Its text, - or all escaped with large or small digits, and base64.
        assert!(all.len() <= 8, "{}", all.len());
        assert!(has("sk-abcdef", "sk-abcdef"));
        assert!(spellings("abcdefgh").iter().all(|spelling| spelling.len() >= 8));
    }

    #[test]
    fn every_common_encoder_is_known() {
        let secret = "a/b +\"\\<\u{e9}\u{1f600}~(";
        for spelling in [
            "a/b +\"\\<\u{e9}\u{1f600}~(",
            "a%2Fb%20%2B%22%5C%3C%C3%A9%F0%9F%98%80~%28",
            "a%2fb%20%2b%22%5c%3c%c3%a9%f0%9f%98%80~%28",
            "a/b%20%2B%22%5C%3C%C3%A9%F0%9F%98%80~%28",
            "a%2Fb+%2B%22%5C%3C%C3%A9%F0%9F%98%80%7E%28",
            "a%2Fb%20%2B%22%5C%3C%C3%A9%F0%9F%98%80~(",
            "a/b%20+%22%5C%3C%C3%A9%F0%9F%98%80~(",
            "a/b +\\\"\\\\<\u{e9}\u{1f600}~(",
            "a\\/b +\\\"\\\\<\u{e9}\u{1f600}~(",
            "a/b +\\\"\\\\<\\u00e9\\ud83d\\ude00~(",
            "a/b +\\\"\\\\<\\u00E9\\uD83D\\uDE00~(",
            "a\\/b +\\\"\\\\<\\u00e9\\ud83d\\ude00~(",
            "a/b +\\\"\\\\\\u003c\u{e9}\u{1f600}~(",
            "a/b \\u002B\\u0022\\\\\\u003C\\u00E9\\uD83D\\uDE00~(",
        ] {
            assert!(has(secret, spelling), "{spelling}");
        }
        assert!(has("a2V5+29m/w==", "a2V5+29m/w\\u003d\\u003d"), "Gson");
    }

    proptest! {
        #[test]
        fn base64_of_any_text_around_a_secret_holds_a_spelling(
            before in "[ -~]{0,8}", secret in "[!-~]{8,20}", after in "[ -~]{0,8}",
        ) {
            for engine in [&STANDARD, &base64::engine::general_purpose::URL_SAFE] {
                let text = engine.encode(format!("{before}{secret}{after}"));
                let found = spellings(&secret)
                    .iter()
                    .any(|known| text.as_bytes().windows(known.len()).any(|part| part == known.as_slice()));
                prop_assert!(found, "{}", text);
            }
        }
    }
}
