//! Compares the parser of `POST /run` with what `serde_json` parses from the same bytes.

#![expect(clippy::panic, reason = "how a property says that it does not hold")]

use std::collections::BTreeSet;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};

use crate::check::request::{CheckRequest, CheckRequestError};
use cofferdam_core::values::duration::parse_timeout;

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
const TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// The maximum length of an error message in bytes: it must not repeat the client's text.
const WORDS_BYTES_MAX: usize = 400;

/// Checks any bytes.
pub fn check(input: &[u8]) {
    let read = CheckRequest::from_json(input, TIMEOUT_DEFAULT, TIMEOUT_MAX);
    match &read {
        Ok(request) => round_trips(request),
        Err(fault) => error_names_the_fault(fault),
    }
    let Ok(text) = std::str::from_utf8(input) else {
        assert!(matches!(read, Err(CheckRequestError::NotUtf8)), "{read:?}");
        return;
    };
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    let is_refused_as_text = matches!(
        read,
        Err(CheckRequestError::Empty
            | CheckRequestError::ByteOrderMark
            | CheckRequestError::Json(_)
            | CheckRequestError::NotAnObject)
    );
    assert!(is_json || is_refused_as_text, "no JSON, and it is {read:?}");
    match serde_json::from_str::<Value>(text) {
        // Half characters and numbers that are too large are refused even in skipped values.
        Ok(value) => matches_value(text, &value, read),
        // `Value` limits depth and numbers; skipped values have no such limits.
        Err(error) if is_json && !is_surrogate(&error) => {}
        Err(error) => assert!(read.is_err(), "{error}, and it is {read:?}"),
    }
}

fn is_surrogate(error: &serde_json::Error) -> bool {
    let words = error.to_string();
    words.contains("surrogate") || words.contains("hex escape")
}

/// Checks that an accepted request, serialized again, is accepted as the same request.
fn round_trips(request: &CheckRequest) {
    let body = json!({
        "lang_slug": request.lang_slug,
        "solution_text": request.solution_text,
        "checker_text": request.checker_text,
        "asserts": request.asserts,
        "timeout": format!("{}ms", request.timeout.as_millis()),
    });
    let again = CheckRequest::from_json(body.to_string().as_bytes(), TIMEOUT_DEFAULT, TIMEOUT_MAX);
    assert_eq!(again.ok().as_ref(), Some(request));
}

fn error_names_the_fault(fault: &CheckRequestError) {
    let words = fault.to_string();
    assert!(words.len() <= WORDS_BYTES_MAX, "an answer of {} bytes", words.len());
    assert!(!words.contains(['\n', '\r']), "{words:?} is not one line");
    let named = match fault {
        CheckRequestError::Missing(field) | CheckRequestError::NotAString(field) => *field,
        CheckRequestError::Timeout | CheckRequestError::TimeoutAboveMaximum(_) => "timeout",
        CheckRequestError::Empty | CheckRequestError::NotUtf8 => "body",
        _ => "JSON",
    };
    assert!(words.contains(named), "{words:?} does not name {named}");
}

/// Checks that `read` follows from `value`, the whole body.
fn matches_value(text: &str, value: &Value, read: Result<CheckRequest, CheckRequestError>) {
    let Some(object) = value.as_object() else {
        let Err(fault) = read else { panic!("{value} was accepted") };
        assert!(fault.to_string().contains("expected an object"), "{fault}");
        return;
    };
    let repeats = serde_json::from_str::<Repeats>(text).is_ok_and(|Repeats(repeats)| repeats);
    if repeats {
        let Err(CheckRequestError::Json(error)) = read else {
            panic!("a key sent twice: {read:?}")
        };
        assert!(error.to_string().contains("duplicate key"), "{error}");
        return;
    }
    let field = |name: &'static str| match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{name} must be a string")),
    };
    let required = |name| field(name)?.ok_or_else(|| format!("{name} is required"));
    let expected = || {
        let timeout = match field("timeout")? {
            None => TIMEOUT_DEFAULT,
            Some(text) => parse_timeout(&text).map_err(|_| "invalid timeout".to_owned())?,
        };
        if timeout > TIMEOUT_MAX {
            return Err("timeout is above the limit of 300s".to_owned());
        }
        Ok(CheckRequest {
            lang_slug: required("lang_slug")?,
            solution_text: required("solution_text")?,
            checker_text: field("checker_text")?,
            asserts: field("asserts")?,
            timeout,
        })
    };
    assert_eq!(read.map_err(|fault| fault.to_string()), expected());
}

/// Whether an object has a key twice.
struct Repeats(bool);

impl<'de> Deserialize<'de> for Repeats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Repeats;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Repeats, A::Error> {
                let (mut seen, mut repeats) = (BTreeSet::new(), false);
                while let Some((key, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                    repeats |= !seen.insert(key);
                }
                Ok(Repeats(repeats))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_fixtures::kept_inputs;

    #[test]
    fn every_kept_input_holds() {
        kept_inputs::replay("request_body", super::check);
    }
}
