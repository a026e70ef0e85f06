//! Deserializes requests so that a value has exactly the type that the request's schema names.

use std::borrow::Cow;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

use super::document::JsonDocument;

/// Why bytes are not a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// They are not JSON.
    #[error("not JSON: line {line} column {column}")]
    NotJson {
        /// The line at which they stop being JSON, from 1.
        line: usize,
        /// The column in that line.
        column: usize,
    },
    /// They are JSON, but a value is not what the request needs.
    #[error("{words}")]
    Invalid {
        /// The path of the value; `.` for the whole.
        path: String,
        /// What is wrong with it, with its path.
        words: String,
    },
}

impl JsonFault {
    fn invalid(path: &str, fault: &str) -> Self {
        Self::Invalid { path: path.to_owned(), words: format!("{path}: {fault}") }
    }
}

/// Parses an object. Unlike serde_json, refuses keys that are there twice, a list for an object, and
/// an object for an enum; `T` refuses unknown keys.
///
/// # Errors
/// That the bytes are not JSON, or the path of the first wrong value.
pub fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonFault> {
    let document = JsonDocument::read(bytes)
        .map_err(|fault| JsonFault::NotJson { line: fault.line(), column: fault.column() })?;
    let JsonDocument { value, twice } = document;
    if let Some(path) = twice {
        return Err(JsonFault::invalid(&path, "the key is there twice"));
    }
    if !value.is_object() {
        let words = "the request must be a JSON object".to_owned();
        return Err(JsonFault::Invalid { path: ".".to_owned(), words });
    }
    serde_path_to_error::deserialize(Strict(value)).map_err(|fault| {
        let path = fault.path().to_string();
        untyped(&path, &fault.into_inner().to_string())
    })
}

/// Converts serde's error for the value at `path`. A missing value is named by its own path.
fn untyped(path: &str, words: &str) -> JsonFault {
    let missing = words.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    match (missing, path) {
        (Some(name), ".") => {
            JsonFault::Invalid { path: name.to_owned(), words: format!("missing field \"{name}\"") }
        }
        (Some(name), _) => JsonFault::Invalid {
            path: format!("{path}.{name}"),
            words: format!("{path}: missing field \"{name}\""),
        },
        (None, _) => JsonFault::invalid(path, &shown_words(path, words)),
    }
}

/// What may be shown of serde's error for the value at `path`: serde quotes the value, and what stands among
/// secrets may be one, at the wrong place.
pub(crate) fn shown_words<'a>(path: &str, words: &'a str) -> Cow<'a, str> {
    match words.rsplit_once(", expected ") {
        Some((_, expected)) if path.split('.').any(|key| key == "secrets") => {
            format!("invalid type, expected {expected}").into()
        }
        _ => words.into(),
    }
}

/// A value that is deserialized without serde_json's conversions.
struct Strict(Value);

impl IntoDeserializer<'_, Error> for Strict {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Strict {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.into_iter().map(Strict));
                let value = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(value)
            }
            Value::Object(members) => {
                let members = members.into_iter().map(|(key, value)| (key, Strict(value)));
                let mut members = MapDeserializer::new(members);
                let value = visitor.visit_map(&mut members)?;
                members.end()?;
                Ok(value)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(_) => self.deserialize_any(visitor),
            _ => Err(Error::custom("must be a JSON object")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::String(word) => visitor.visit_enum(word.into_deserializer()),
            _ => Err(Error::custom("must be a string")),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        inner: Option<Inner>,
        count: Option<u64>,
        names: Option<Vec<String>>,
        map: Option<BTreeMap<String, String>>,
        word: Option<Word>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        needed: bool,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Yes,
    }

    #[test]
    fn a_request_is_what_its_schema_says() {
        let text =
            r#"{"inner":{"needed":true},"count":7,"names":["a"],"map":{"k":"v"},"word":"yes"}"#;
        let parsed: Outer = parse_object(text.as_bytes()).unwrap();
        let expected = Outer {
            inner: Some(Inner { needed: true }),
            count: Some(7),
            names: Some(vec!["a".to_owned()]),
            map: Some([("k".to_owned(), "v".to_owned())].into()),
            word: Some(Word::Yes),
        };
        assert_eq!(parsed, expected);
        for text in ["{}", r#"{"inner":null,"count":null,"names":null,"map":null,"word":null}"#] {
            assert_eq!(parse_object::<Outer>(text.as_bytes()).unwrap(), Outer::default());
        }
    }

    #[test]
    fn a_wrong_value_is_named_by_its_path() {
        for (text, path) in [
            ("[]", "."),
            ("7", "."),
            (r#"{"other":1}"#, "other"),
            (r#"{"count":-1}"#, "count"),
            (r#"{"count":1.0}"#, "count"),
            (r#"{"count":"1"}"#, "count"),
            (r#"{"inner":{}}"#, "inner.needed"),
            (r#"{"inner":[true]}"#, "inner"),
            (r#"{"inner":{"needed":true,"more":1}}"#, "inner.more"),
            (r#"{"names":["a",7]}"#, "names[1]"),
            (r#"{"map":{"k":7}}"#, "map.k"),
            (r#"{"map":[["k","v"]]}"#, "map"),
            (r#"{"word":"no"}"#, "word"),
            (r#"{"word":{"yes":null}}"#, "word"),
            (r#"{"count":1,"count":1}"#, "count"),
        ] {
            let fault = parse_object::<Outer>(text.as_bytes()).unwrap_err();
            let JsonFault::Invalid { path: named, .. } = &fault else { panic!("{text}: {fault}") };
            assert_eq!(named, path, "{text}: {fault}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_told_apart() {
        for text in ["", "{", "{} {}", "\u{feff}{}", r#"{"count":1,}"#] {
            let fault = parse_object::<Outer>(text.as_bytes()).unwrap_err();
            assert!(matches!(fault, JsonFault::NotJson { .. }), "{text:?}: {fault}");
        }
    }
}
