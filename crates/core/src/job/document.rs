//! Checks of a request's JSON before it is deserialized: duplicate keys, and values that serde would
//! accept but the schema does not allow (a list for an object, an object with one key for an enum).

use serde_json::Value;

use crate::json::JsonDocument;

/// Paths that must be objects if present, outer ones first.
const OBJECTS: [&str; 9] = [
    "",
    "trace",
    "workspace",
    "command",
    "command.env",
    "policy",
    "policy.artifacts",
    "limits",
    "backend",
];
/// Paths that must be strings if present.
const TEXTS: [&str; 2] = ["workspace.source", "backend.kind"];
/// A list whose items must be strings.
const LIST_OF_TEXTS: &str = "policy.require_enforced";

/// An error in a document, and its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShapeError {
    pub(super) path: String,
    pub(super) words: &'static str,
}

/// Parses all of `bytes` as one JSON value. The outer error means that the bytes are not JSON, the
/// inner one that the value cannot be a request.
pub(super) fn read(bytes: &[u8]) -> Result<Result<Value, ShapeError>, serde_json::Error> {
    let JsonDocument { value, twice } = JsonDocument::read(bytes)?;
    let twice = twice.map(|path| ShapeError { path, words: "the key is there twice" });
    Ok(match twice.or_else(|| shape_error(&value)) {
        Some(fault) => Err(fault),
        None => Ok(value),
    })
}

/// The first value whose type is not the schema's, although serde would accept it.
fn shape_error(value: &Value) -> Option<ShapeError> {
    let at = |path: &str| {
        let mut parts = path.split('.').filter(|part| !part.is_empty());
        parts.try_fold(value, |value, part| value.get(part))
    };
    let find = |paths: &[&str], is_right: fn(&Value) -> bool, words| {
        let wrong = paths.iter().find(|path| at(path).is_some_and(|value| !is_right(value)))?;
        Some(ShapeError { path: (*wrong).to_owned(), words })
    };
    let list = at(LIST_OF_TEXTS).and_then(Value::as_array);
    find(&OBJECTS, Value::is_object, "must be a JSON object")
        .or_else(|| find(&TEXTS, Value::is_string, "must be a string"))
        .or_else(|| {
            let index = list?.iter().position(|item| !item.is_string())?;
            let path = format!("{LIST_OF_TEXTS}[{index}]");
            Some(ShapeError { path, words: "must be a string" })
        })
}
