//! Secrets: values that no sandbox, record or message ever has.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// The shortest secret, bytes: a shorter one could not be redacted without harm.
const SECRET_BYTES_MIN: usize = 8;
/// The longest secret, bytes.
pub const SECRET_BYTES_MAX: usize = 64 << 10;
/// The longest name of a secret, bytes.
const NAME_BYTES_MAX: usize = 64;
/// What stands for a secret wherever it would be shown.
pub const REDACTED: &str = "[redacted]";

/// The value of a secret. It is shown nowhere, neither copied nor serialized, and overwritten when it is
/// dropped.
pub struct SecretValue(Zeroizing<String>);

/// A text that is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret has 8 bytes to 64 KiB and no control characters")]
pub struct SecretFault;

impl SecretValue {
    /// Takes `text`.
    ///
    /// # Errors
    /// It is too short or too long, or holds a control character. The text is overwritten.
    pub fn new(text: String) -> Result<Self, SecretFault> {
        let text = Zeroizing::new(text);
        let fits = (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&text.len());
        let is_plain = !text.chars().any(char::is_control);
        if fits && is_plain { Ok(Self(text)) } else { Err(SecretFault) }
    }

    /// The text itself. A caller that copies it must overwrite the copy.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(REDACTED)
    }
}

impl fmt::Display for SecretValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(REDACTED)
    }
}

/// The time does not depend on where the texts differ.
impl PartialEq for SecretValue {
    fn eq(&self, other: &Self) -> bool {
        let (one, two) = (self.0.as_bytes(), other.0.as_bytes());
        let differences = one.iter().zip(two).fold(0, |all, (a, b)| all | (a ^ b));
        one.len() == two.len() && differences == 0
    }
}

impl Eq for SecretValue {}

/// Whether `name` can name a secret.
pub fn is_secret_name(name: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    starts_well && name.len() <= NAME_BYTES_MAX && name.bytes().all(word)
}

/// The value of a secret in a request. Serialized, a value is null.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GivenSecret {
    /// The service has it.
    #[default]
    OfService,
    /// The request had it; this is a record of the request.
    Withheld,
    /// The request has it.
    Value(Arc<SecretValue>),
}

impl GivenSecret {
    /// Whether the service has it.
    pub fn is_of_service(&self) -> bool {
        *self == Self::OfService
    }

    /// What a record keeps.
    pub fn withheld(&self) -> Self {
        if self.is_of_service() { Self::OfService } else { Self::Withheld }
    }
}

impl Serialize for GivenSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_none()
    }
}

/// By hand: no error shows what stands in place of a text.
impl<'de> Deserialize<'de> for GivenSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GivenVisitor)
    }
}

struct GivenVisitor;

const NO_TEXT: &str = "want a string";

impl<'de> Visitor<'de> for GivenVisitor {
    type Value = GivenSecret;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a string")
    }

    fn visit_string<E: Error>(self, text: String) -> Result<GivenSecret, E> {
        SecretValue::new(text).map(|value| GivenSecret::Value(Arc::new(value))).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<GivenSecret, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_unit<E: Error>(self) -> Result<GivenSecret, E> {
        Ok(GivenSecret::Withheld)
    }

    fn visit_none<E: Error>(self) -> Result<GivenSecret, E> {
        Ok(GivenSecret::Withheld)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<GivenSecret, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<GivenSecret, E> {
        Err(E::custom(NO_TEXT))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<GivenSecret, E> {
        Err(E::custom(NO_TEXT))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<GivenSecret, E> {
        Err(E::custom(NO_TEXT))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<GivenSecret, E> {
        Err(E::custom(NO_TEXT))
    }
}

impl JsonSchema for GivenSecret {
    fn schema_name() -> Cow<'static, str> {
        "GivenSecret".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "null"], "minLength": 8, "maxLength": SECRET_BYTES_MAX})
    }
}

/// A secret of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SecretObject {
    /// Its value, 8 bytes to 64 KiB without control characters. Without it the service's secret of that
    /// name is used. Null in every record.
    #[serde(skip_serializing_if = "GivenSecret::is_of_service")]
    pub value: GivenSecret,
    /// The hosts that it may be sent to; required beside a value. The port is 443 if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Where a request may hold its placeholder: `authorization`, `x-api-key`, `api-key`,
    /// `x-goog-api-key`, `private-token` (these five by default), `header:NAME` or `query:KEY`.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub places: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "sk-do-not-show-me";

    #[test]
    fn a_secret_is_shown_nowhere() {
        let secret = SecretValue::new(TEXT.to_owned()).unwrap();
        assert_eq!(secret.expose(), TEXT);
        assert_eq!([format!("{secret}"), format!("{secret:?}")], [REDACTED, REDACTED]);
        let object = SecretObject {
            value: GivenSecret::Value(Arc::new(secret)),
            hosts: Some(vec!["a.example".to_owned()]),
            places: None,
        };
        assert!(!format!("{object:?}").contains(TEXT));
        let json = serde_json::to_string(&object).unwrap();
        assert_eq!(json, r#"{"value":null,"hosts":["a.example"]}"#);
        let read: SecretObject = serde_json::from_str(&json).unwrap();
        assert_eq!(read.value, GivenSecret::Withheld);
        assert_eq!(object.value.withheld(), GivenSecret::Withheld);
        assert_eq!(serde_json::to_string(&SecretObject::default()).unwrap(), "{}");
        assert!(serde_json::from_str::<SecretObject>("{}").unwrap().value.is_of_service());
    }

    #[test]
    fn no_error_shows_what_stands_for_a_secret() {
        for text in [
            "\"short12\"",
            "\"with-a-\\u0007-bell\"",
            "\"feed\\nline-1\"",
            "12345678901",
            "true",
            "1.5e9",
        ] {
            let json = format!("{{\"value\": {text}}}");
            let error = serde_json::from_str::<SecretObject>(&json).unwrap_err().to_string();
            let word = text.trim_matches('"').get(..4).unwrap();
            assert!(!error.contains(word), "{text}: {error}");
        }
        for (bytes, fits) in
            [(7, false), (8, true), (SECRET_BYTES_MAX, true), (SECRET_BYTES_MAX + 1, false)]
        {
            assert_eq!(SecretValue::new("x".repeat(bytes)).is_ok(), fits, "{bytes}");
        }
    }

    #[test]
    fn equal_secrets_have_equal_texts() {
        let secret = |text: &str| SecretValue::new(text.to_owned()).unwrap();
        assert_eq!(secret(TEXT), secret(TEXT));
        assert_ne!(secret("12345678"), secret("12345679"));
        assert_ne!(secret("12345678"), secret("123456789"));
    }

    #[test]
    fn a_name_is_a_word_of_at_most_64_bytes() {
        let long = "a".repeat(65);
        for (name, is_name) in [
            ("openai", true),
            ("_A9", true),
            ("", false),
            ("9a", false),
            ("a-b", false),
            ("a.b", false),
            ("é", false),
            (&long[..64], true),
            (&long, false),
        ] {
            assert_eq!(is_secret_name(name), is_name, "{name:?}");
        }
    }
}
