//! Which form of an answer the client asked for.

pub(crate) mod authorization;
pub(crate) mod body;
pub(crate) mod host;
pub(crate) mod origin;
pub(crate) mod percent;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// Whether `Accept` names `media_type` itself, not merely a pattern it fits.
pub fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut ranges = values.flat_map(|value| value.split(','));
    ranges.any(|range| {
        let name = range.split(';').next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case(media_type)
    })
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
}
