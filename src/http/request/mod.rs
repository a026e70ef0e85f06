//! Parses and checks the parts of a request.

pub(crate) mod access;
pub(crate) mod body;
pub(crate) mod idempotency_key;
pub(crate) mod log;
pub(crate) mod wiped;

use std::borrow::Cow;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use percent_encoding::percent_decode_str;

/// Returns whether `Accept` names `media_type` itself; wildcards do not count.
pub fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut ranges = values.flat_map(|value| value.split(','));
    ranges.any(|range| {
        let name = range.split(';').next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case(media_type)
    })
}

/// Decodes percent-encoding. Returns `None` if `encoded` is malformed or not UTF-8. A `+` stays a
/// plus.
pub fn percent_decode(encoded: &str) -> Option<String> {
    // The crate passes malformed escapes through.
    let is_escape = |rest: &str| matches!(rest.as_bytes(), [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    if !encoded.split('%').skip(1).all(is_escape) {
        return None;
    }
    percent_decode_str(encoded).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_the_type_itself_is_accepted() {
        for (value, accepted) in [
            ("application/json", true),
            ("text/html, Application/JSON;q=0.9", true),
            ("*/*", false),
            ("application/*", false),
            ("application/jsonx", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(value));
            assert_eq!(accepts(&headers, "application/json"), accepted, "{value:?}");
        }
    }

    #[test]
    fn malformed_escapes_and_invalid_utf8_are_refused() {
        for (encoded, text) in [
            ("", Some("")),
            ("a/b+c", Some("a/b+c")),
            ("a%20b", Some("a b")),
            ("%2E%2e%2F", Some("../")),
            ("%c3%A9", Some("é")),
            ("%2541", Some("%41")),
            ("%00", Some("\0")),
            ("%", None),
            ("%4", None),
            ("%4g", None),
            ("%+1", None),
            ("%ff", None),
            ("%c3", None),
        ] {
            assert_eq!(percent_decode(encoded).as_deref(), text, "{encoded:?}");
        }
    }
}
