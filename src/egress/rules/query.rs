//! The query of a request, as pairs.

use std::borrow::Cow;
use std::fmt::Write;

use percent_encoding::percent_decode_str;

use super::path::is_unreserved;

/// The key and the value of one pair as they are written.
pub fn split_pair(pair: &str) -> (&str, Option<&str>) {
    pair.split_once('=').map_or((pair, None), |(key, value)| (key, Some(value)))
}

/// A key or value as a form means it.
pub fn decode(text: &str) -> Vec<u8> {
    let spaced = text.replace('+', " ");
    Cow::from(percent_decode_str(&spaced)).into_owned()
}

/// How many bytes [`encode`] writes at most.
pub fn encoded_bytes_max(text: &[u8]) -> usize {
    text.len() * 3
}

/// Appends `text` to `out` so that it is one key or value.
pub fn encode(text: &[u8], out: &mut String) {
    for byte in text {
        if is_unreserved(*byte) {
            out.push(char::from(*byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_encoded_so_that_it_is_one_value() {
        for (text, encoded) in
            [("abc-._~", "abc-._~"), ("a b&c=d+/%", "a%20b%26c%3Dd%2B%2F%25"), ("\u{e9}", "%C3%A9")]
        {
            let mut out = String::new();
            encode(text.as_bytes(), &mut out);
            assert_eq!(out, encoded);
            assert_eq!(decode(&out), text.as_bytes());
        }
        assert_eq!(decode("a+b%2Bc"), b"a b+c");
        assert_eq!(split_pair("a=b=c"), ("a", Some("b=c")));
        assert_eq!(split_pair("a"), ("a", None));
    }
}
