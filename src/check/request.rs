//! Parses and validates the body of `POST /run`.
//!
//! The parser is written by hand because derived ones give other answers: a syntax error anywhere
//! takes precedence over a wrong type, and a key sent twice is refused even if it is unknown. An
//! untagged enum or `Value` would also build skipped values in memory, about 16 times the size of
//! the body.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use cofferdam_core::values::duration::parse_timeout;

/// How many characters of a tenant's key an error message repeats.
const KEY_CHARS_SHOWN_MAX: usize = 64;

/// A request to check one solution. The language is looked up later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRequest {
    /// The language's slug, as sent.
    pub lang_slug: String,
    /// The solution, written unchanged.
    pub solution_text: String,
    /// The checker, if present.
    pub checker_text: Option<String>,
    /// The text of `asserts.json`; without it the workspace's own file is used.
    pub asserts: Option<String>,
    /// The wall-clock limit.
    pub timeout: Duration,
}

/// Why a body is not a valid [`CheckRequest`].
#[derive(Debug, thiserror::Error)]
pub enum CheckRequestError {
    /// Only white space.
    #[error("empty body")]
    Empty,
    /// A byte order mark, which JSON does not allow.
    #[error("byte order mark before the JSON")]
    ByteOrderMark,
    /// Bytes that are not UTF-8.
    #[error("body is not UTF-8")]
    NotUtf8,
    /// Not one JSON object: a syntax error, trailing bytes or a key sent twice.
    #[error("bad JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON, but not an object.
    #[error("bad JSON: expected an object")]
    NotAnObject,
    /// An escape for half of a character.
    #[error("bad JSON: lone surrogate")]
    LoneSurrogate,
    /// A required field is absent or null.
    #[error("{0} is required")]
    Missing(&'static str),
    /// A field that is not a string.
    #[error("{0} must be a string")]
    NotAString(&'static str),
    /// A malformed timeout, or a number that is too large.
    #[error("invalid timeout")]
    Timeout,
    /// A timeout above the operator's limit.
    #[error("timeout is above the limit of {0:?}")]
    TimeoutAboveMaximum(Duration),
}

impl CheckRequest {
    /// Parses a request. Without `timeout`, uses `timeout_default`, or `timeout_max` if that is
    /// shorter.
    pub fn from_json(
        body: &[u8],
        timeout_default: Duration,
        timeout_max: Duration,
    ) -> Result<Self, CheckRequestError> {
        // serde_json checks only the strings that it keeps, so the whole body is checked here.
        let text = std::str::from_utf8(body).map_err(|_| CheckRequestError::NotUtf8)?;
        if text.starts_with('\u{FEFF}') {
            return Err(CheckRequestError::ByteOrderMark);
        }
        if text.trim_ascii().is_empty() {
            return Err(CheckRequestError::Empty);
        }
        let fields: Fields = serde_json::from_str(text).map_err(|error| {
            // serde_json's message would repeat a text of any length.
            let is_object = text.trim_ascii_start().starts_with('{');
            if error.is_data() && !is_object {
                CheckRequestError::NotAnObject
            } else {
                error.into()
            }
        })?;
        if has_lone_surrogate(text) {
            return Err(CheckRequestError::LoneSurrogate);
        }
        let timeout = match fields.timeout.optional("timeout")? {
            None => timeout_default.min(timeout_max),
            Some(text) => parse_timeout(&text).map_err(|_| CheckRequestError::Timeout)?,
        };
        if timeout > timeout_max {
            return Err(CheckRequestError::TimeoutAboveMaximum(timeout_max));
        }
        Ok(Self {
            lang_slug: fields.lang_slug.required("lang_slug")?,
            solution_text: fields.solution_text.required("solution_text")?,
            checker_text: fields.checker_text.optional("checker_text")?,
            asserts: fields.asserts.optional("asserts")?,
            timeout,
        })
    }
}

/// Returns whether an escape in `json`, which is otherwise valid, stands for half of a character.
/// serde_json accepts it in strings that it skips.
fn has_lone_surrogate(json: &str) -> bool {
    let mut rest = json;
    let mut after_high = false;
    // JSON has backslashes only in strings.
    while let Some((before, escape)) = rest.split_once('\\') {
        let hex = escape.strip_prefix('u').and_then(|digits| digits.get(..4));
        let unit = hex.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let is_low = unit.is_some_and(|unit| (0xDC00..=0xDFFF).contains(&unit));
        if is_low != after_high || (after_high && !before.is_empty()) {
            return true;
        }
        after_high = unit.is_some_and(|unit| (0xD800..=0xDBFF).contains(&unit));
        rest = escape.get(if unit.is_some() { 5 } else { 1 }..).unwrap_or_default();
    }
    after_high
}

/// The known fields of the object.
#[derive(Default)]
struct Fields {
    lang_slug: Field,
    solution_text: Field,
    checker_text: Field,
    asserts: Field,
    timeout: Field,
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let field = match key.as_str() {
                "lang_slug" => Some(&mut fields.lang_slug),
                "solution_text" => Some(&mut fields.solution_text),
                "checker_text" => Some(&mut fields.checker_text),
                "asserts" => Some(&mut fields.asserts),
                "timeout" => Some(&mut fields.timeout),
                _ => None,
            };
            match field {
                Some(field) => *field = map.next_value()?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
            if let Some(twice) = seen.replace(key) {
                let shown: String = twice.chars().take(KEY_CHARS_SHOWN_MAX).collect();
                return Err(A::Error::custom(format_args!("duplicate key {shown:?}")));
            }
        }
        Ok(fields)
    }
}

/// The value of a field that must be a string. The other cases decide the error message.
#[derive(Default)]
enum Field {
    #[default]
    Absent,
    Text(String),
    Other,
}

impl Field {
    fn required(self, name: &'static str) -> Result<String, CheckRequestError> {
        self.optional(name)?.ok_or(CheckRequestError::Missing(name))
    }

    fn optional(self, name: &'static str) -> Result<Option<String>, CheckRequestError> {
        match self {
            Self::Absent => Ok(None),
            Self::Text(text) => Ok(Some(text)),
            Self::Other => Err(CheckRequestError::NotAString(name)),
        }
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldVisitor)
    }
}

struct FieldVisitor;

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = Field;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Field, E> {
        Ok(Field::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Field, E> {
        Ok(Field::Text(text))
    }

    fn visit_unit<E>(self) -> Result<Field, E> {
        Ok(Field::Absent)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Field, E> {
        Ok(Field::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Field, E> {
        Ok(Field::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Field, E> {
        Ok(Field::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Field, E> {
        Ok(Field::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Field, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Field::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Field, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Field::Other)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEFAULT: Duration = Duration::from_secs(30);
    const MAX: Duration = Duration::from_secs(300);

    fn read(body: &[u8]) -> Result<CheckRequest, String> {
        CheckRequest::from_json(body, DEFAULT, MAX).map_err(|fault| fault.to_string())
    }

    /// Returns a valid body with `extra` members at the end.
    fn with(extra: &str) -> Vec<u8> {
        format!(r#"{{"solution_text":"s","lang_slug":"python"{extra}}}"#).into_bytes()
    }

    #[test]
    fn a_complete_request_is_accepted_unchanged() {
        let request = read(
            br#"{"timeout":"2m","asserts":"[]","checker_text":"","lang_slug":"cpp","solution_text":"\u0000\ud83d\ude00"}"#,
        );
        assert_eq!(
            request.unwrap(),
            CheckRequest {
                lang_slug: "cpp".into(),
                solution_text: "\0😀".into(),
                checker_text: Some(String::new()),
                asserts: Some("[]".into()),
                timeout: Duration::from_secs(120),
            }
        );
    }

    #[test]
    fn null_means_absent_and_unknown_keys_are_ignored() {
        let bare = read(&with("")).unwrap();
        assert_eq!((bare.timeout, &bare.asserts, &bare.checker_text), (DEFAULT, &None, &None));
        for extra in [
            r#","asserts":null,"timeout":null,"checker_text":null"#,
            r#","more":{"a":[1,2,{"b":null}]},"Timeout":5,"":"x""#,
        ] {
            assert_eq!(read(&with(extra)).as_ref(), Ok(&bare), "{extra}");
        }
    }

    #[test]
    fn every_text_error_is_named() {
        let table: [(&[u8], &str); 13] = [
            (b"", "empty body"),
            (b" \r\n\t", "empty body"),
            (b"\xEF\xBB\xBF{}", "byte order mark"),
            (b"{\"lang_slug\":\"\xFF\"}", "not UTF-8"),
            (b"{\"other\":\"\xC3\"}", "not UTF-8"),
            (b"[]", "expected an object"),
            (b"\"text\"", "expected an object"),
            (b"null", "expected an object"),
            (b"{", "EOF"),
            (b"{\"solution_text\":\"s\",\"lang_slug\":\"python\"} x", "trailing characters"),
            (br#"{"solution_text":"\ud800","lang_slug":"python"}"#, "hex escape"),
            (br#"{"solution_text":"\udc00x","lang_slug":"python"}"#, "surrogate"),
            (b"{\"a\":1,}", "trailing comma"),
        ];
        for (body, words) in table {
            let fault = read(body).unwrap_err();
            assert!(fault.contains(words), "{:?}: {fault}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn an_error_never_repeats_a_long_text() {
        let long = "x".repeat(100_000);
        for body in [format!("\"{long}\""), format!(" \n\"{long}\"")] {
            assert_eq!(read(body.as_bytes()).unwrap_err(), "bad JSON: expected an object");
        }
    }

    #[test]
    fn a_lone_surrogate_is_refused_everywhere() {
        for text in [
            r"\ud800",
            r"\uD800",
            r"\udc00",
            r"\udfff\ud800",
            r"\ud800\ud800",
            r"\ud800 \udc00",
            r"\ud800\n\udc00",
            r"\ud83d\ude00\ude00",
            r"\\\ud800",
            r"\ud800\u0041",
        ] {
            for member in [
                format!(r#","x":"{text}""#),
                format!(r#","x":[{{"{text}":1}}]"#),
                format!(r#","{text}":1"#),
                format!(r#","asserts":"{text}""#),
                format!(r#","x":"{text}","y":"\ude00""#),
            ] {
                let fault = read(&with(&member)).unwrap_err();
                assert!(fault.starts_with("bad JSON: "), "{member}: {fault}");
            }
        }
        for text in [r"\ud83d\ude00", r"\uD83D\uDE00\ud83d\ude00", r"\\ud800", r"\u00e9\/\\", "é"]
        {
            let member = format!(r#","x":["{text}",{{"{text}":"{text}"}}],"asserts":"{text}""#);
            assert!(read(&with(&member)).is_ok(), "{member}");
        }
    }

    #[test]
    fn a_duplicate_key_is_refused_known_or_not() {
        for extra in
            [r#","lang_slug":"ruby""#, r#","x":1,"x":1"#, r#","timeout":null,"timeout":null"#]
        {
            let fault = read(&with(extra)).unwrap_err();
            assert!(fault.contains("duplicate key"), "{extra}: {fault}");
        }
        let long = "k".repeat(100_000);
        let fault = read(&with(&format!(r#","{long}":1,"{long}":1"#))).unwrap_err();
        assert!(fault.len() < 200, "a fault of {} bytes", fault.len());
    }

    #[test]
    fn a_field_that_is_not_a_string_is_named() {
        for value in ["5", "-5", "5.5", "true", "[]", "[1,[2]]", "{}", r#"{"a":{"b":1}}"#] {
            for name in ["asserts", "timeout", "checker_text"] {
                let fault = read(&with(&format!(r#","{name}":{value}"#))).unwrap_err();
                assert_eq!(fault, format!("{name} must be a string"), "{value}");
            }
            let body = format!(r#"{{"solution_text":{value},"lang_slug":"python"}}"#);
            assert_eq!(read(body.as_bytes()).unwrap_err(), "solution_text must be a string");
        }
        for (body, fault) in [
            (r#"{"lang_slug":"python"}"#, "solution_text is required"),
            (r#"{"lang_slug":"python","solution_text":null}"#, "solution_text is required"),
            (r#"{"solution_text":"s"}"#, "lang_slug is required"),
            (r#"{"solution_text":"s","lang_slug":null}"#, "lang_slug is required"),
        ] {
            assert_eq!(read(body.as_bytes()).unwrap_err(), fault, "{body}");
        }
    }

    #[test]
    fn a_timeout_obeys_the_grammar_and_the_maximum() {
        for (text, seconds) in [("1000ms", 1), ("1s", 1), ("1m", 60), ("0s", 0), ("300s", 300)] {
            let request = read(&with(&format!(r#","timeout":"{text}""#))).unwrap();
            assert_eq!(request.timeout, Duration::from_secs(seconds), "{text}");
        }
        for text in ["", "5", "s", "1h", "1.5s", "-1s", " 5s", "1_0s", "18446744073709551615s"] {
            let fault = read(&with(&format!(r#","timeout":"{text}""#))).unwrap_err();
            assert_eq!(fault, "invalid timeout", "{text}");
        }
        let fault = read(&with(r#","timeout":"300001ms""#)).unwrap_err();
        assert_eq!(fault, "timeout is above the limit of 300s");
        let short = CheckRequest::from_json(&with(""), DEFAULT, Duration::from_secs(5)).unwrap();
        assert_eq!(short.timeout, Duration::from_secs(5));
    }

    #[test]
    fn deep_nesting_costs_no_stack() {
        let deep = "[".repeat(500_000);
        for key in ["x", "solution_text"] {
            assert!(read(format!(r#"{{"{key}":{deep}"#).as_bytes()).is_err());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&body);
        }

        #[test]
        fn arbitrary_text_survives_the_round_trip(solution in any::<String>()) {
            let body = serde_json::json!({ "solution_text": solution, "lang_slug": "js" });
            let request = read(body.to_string().as_bytes()).unwrap();
            prop_assert_eq!(request.solution_text, solution);
        }
    }
}
