//! The places in a request that may hold a placeholder.

use axum::http::HeaderName;

use crate::egress::rules::rule::settable_header;

/// Headers that hold keys by custom.
const HEADERS: [&str; 5] =
    ["authorization", "x-api-key", "api-key", "x-goog-api-key", "private-token"];

/// A place in a request that may hold a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlace {
    Header(HeaderName),
    /// A parameter of the query.
    Query(String),
}

impl SecretPlace {
    /// Parses a place, or returns what one is.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let wrong = "want authorization, x-api-key, api-key, x-goog-api-key, private-token, \
                     header:NAME or query:KEY";
        if let Some(name) = text.strip_prefix("header:") {
            return settable_header(name).map(Self::Header);
        }
        if let Some(key) = text.strip_prefix("query:").filter(|key| !key.is_empty()) {
            return Ok(Self::Query(key.to_owned()));
        }
        let known = HEADERS.into_iter().find(|known| text.eq_ignore_ascii_case(known));
        known.map(|name| Self::Header(HeaderName::from_static(name))).ok_or(wrong)
    }

    pub fn is_header(&self, name: &HeaderName) -> bool {
        matches!(self, Self::Header(own) if own == name)
    }

    pub fn is_query(&self, key: &[u8]) -> bool {
        matches!(self, Self::Query(own) if own.as_bytes() == key)
    }
}

/// The places of a secret that names none.
pub fn default_places() -> Vec<SecretPlace> {
    HEADERS.into_iter().map(|name| SecretPlace::Header(HeaderName::from_static(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_known_header_or_says_its_kind() {
        let header = |name| SecretPlace::Header(HeaderName::from_static(name));
        for (text, place) in [
            ("authorization", header("authorization")),
            ("X-API-Key", header("x-api-key")),
            ("header:X-Key", header("x-key")),
            ("query:key", SecretPlace::Query("key".to_owned())),
        ] {
            assert_eq!(SecretPlace::parse(text), Ok(place), "{text}");
        }
        for text in
            ["", "x-key", "header:", "header:a b", "header:Host", "query:", "body", "cookie"]
        {
            assert!(SecretPlace::parse(text).is_err(), "{text}");
        }
        assert_eq!(default_places().len(), 5);
    }
}
