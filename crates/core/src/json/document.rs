//! Reads JSON into a value, and finds keys that are there twice, which serde_json lets pass.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The most bytes of a path in an error: the client chooses the keys.
const PATH_SHOWN_BYTES_MAX: usize = 1024;

/// A JSON value as a text has it.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonDocument {
    /// The value. Of two equal keys it has the last.
    pub value: Value,
    /// The path of the first key that is there twice.
    pub twice: Option<String>,
}

impl JsonDocument {
    /// Parses all of `bytes` as one JSON value.
    ///
    /// # Errors
    /// Where the bytes stop being JSON.
    pub fn read(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let progress = RefCell::new(KeyTracker::default());
        let mut parser = serde_json::Deserializer::from_slice(bytes);
        let value = Node(&progress).deserialize(&mut parser)?;
        parser.end()?;
        Ok(Self { value, twice: progress.into_inner().twice })
    }
}

/// The path of the current value, and of the first duplicate key.
#[derive(Debug, Default)]
struct KeyTracker {
    path: String,
    twice: Option<String>,
}

impl KeyTracker {
    /// Enters a member of the value. Returns the length to pass to [`KeyTracker::leave`].
    fn enter_key(&mut self, key: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        length
    }

    fn enter_index(&mut self, index: usize) -> usize {
        let length = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        length
    }

    fn leave(&mut self, length: usize) {
        self.path.truncate(length);
    }

    fn found_twice(&mut self) {
        let path = &self.path;
        let end = path.floor_char_boundary(PATH_SHOWN_BYTES_MAX);
        self.twice.get_or_insert_with(|| path.get(..end).unwrap_or_default().to_owned());
    }
}

/// One value of the document.
struct Node<'a>(&'a RefCell<KeyTracker>);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let length = self.0.borrow_mut().enter_index(items.len());
            let item = list.next_element_seed(Node(self.0))?;
            self.0.borrow_mut().leave(length);
            match item {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let length = self.0.borrow_mut().enter_key(&key);
            let value = members.next_value_seed(Node(self.0))?;
            if object.insert(key, value).is_some() {
                self.0.borrow_mut().found_twice();
            }
            self.0.borrow_mut().leave(length);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_equals_what_serde_parses() {
        for text in [
            "null",
            "true",
            "-7",
            "18446744073709551615",
            "1.5",
            r#""a\u00e9\n""#,
            "[]",
            r#"{"a":{"b":[1,{"c":null}]}}"#,
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            let expected = JsonDocument { value, twice: None };
            assert_eq!(JsonDocument::read(text.as_bytes()).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn the_first_duplicate_key_is_named_unless_the_text_is_not_json() {
        for (text, path) in [
            (r#"{"a":1,"a":1}"#, "a"),
            (r#"{"x":{"b":1,"c":2,"b":3},"x":1}"#, "x.b"),
            (r#"{"x":[0,{"b":1,"\u0062":1}]}"#, "x[1].b"),
        ] {
            let read = JsonDocument::read(text.as_bytes()).unwrap();
            assert_eq!(read.twice.as_deref(), Some(path), "{text}");
        }
        assert!(JsonDocument::read(br#"{"a":1,"a":1"#).is_err());
        let long = "k".repeat(1 << 20);
        let text = format!(r#"{{"{long}":1,"{long}":2}}"#);
        let read = JsonDocument::read(text.as_bytes()).unwrap();
        assert_eq!(read.twice.unwrap().len(), PATH_SHOWN_BYTES_MAX);
    }
}
