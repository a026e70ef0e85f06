//! One entry of the allow-list of commands.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::values::digest::Digest;

/// A SHA-256 digest, as 64 hexadecimal digits in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String", extend("pattern" = "^[0-9A-Fa-f]{64}$"))]
pub struct Sha256(String);

impl Sha256 {
    /// Parses 64 hexadecimal digits of either case.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| Self(text.to_ascii_lowercase()))
    }

    /// The digest of all bytes added to `digest`.
    pub fn from_digest(digest: Digest) -> Self {
        Self(digest.finish())
    }

    /// The digits, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Sha256 {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        Self::parse(&text).ok_or("want 64 hexadecimal digits")
    }
}

/// A command that may be run. All fields that are set must match. In JSON, a plain string is a
/// basename.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedCommand {
    /// The name of the executable. It is searched only in the runner's PATH, so a file of the
    /// workspace never matches.
    pub basename: Option<String>,
    /// The absolute path of the executable in the sandbox.
    pub path: Option<String>,
    /// The digest of the executable.
    pub sha256: Option<Sha256>,
}

/// An allowed command as an object.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Detailed {
    /// The name of the executable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    basename: Option<String>,
    /// The absolute path of the executable in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The digest of the executable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256>,
}

impl AllowedCommand {
    /// Allows the executable of that name in the runner's PATH.
    pub fn named(basename: impl Into<String>) -> Self {
        Self { basename: Some(basename.into()), path: None, sha256: None }
    }

    fn checked(self) -> Result<Self, &'static str> {
        let is_name = |name: &str| !name.is_empty() && !name.contains(['/', '\0']);
        let is_path = |path: &str| path.starts_with('/') && !path.contains('\0');
        if !self.basename.as_deref().is_none_or(is_name) {
            return Err("a basename is a name without a slash");
        }
        if !self.path.as_deref().is_none_or(is_path) {
            return Err("a path is absolute");
        }
        if self.basename.is_none() && self.path.is_none() {
            return Err("want a basename, a path or both");
        }
        Ok(self)
    }
}

impl Serialize for AllowedCommand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self { basename: Some(basename), path: None, sha256: None } => {
                serializer.serialize_str(basename)
            }
            Self { basename, path, sha256 } => {
                let (basename, path, sha256) = (basename.clone(), path.clone(), sha256.clone());
                Detailed { basename, path, sha256 }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for AllowedCommand {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrObject)
    }
}

/// Parses either form. Serde's `untagged` would lose the reason of an error.
struct TextOrObject;

impl<'de> Visitor<'de> for TextOrObject {
    type Value = AllowedCommand;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a basename, or an object with basename, path and sha256")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<AllowedCommand, E> {
        AllowedCommand::named(text).checked().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AllowedCommand, A::Error> {
        let Detailed { basename, path, sha256 } =
            Detailed::deserialize(MapAccessDeserializer::new(map))?;
        AllowedCommand { basename, path, sha256 }.checked().map_err(A::Error::custom)
    }
}

impl JsonSchema for AllowedCommand {
    fn schema_name() -> Cow<'static, str> {
        "AllowedCommand".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let detailed = generator.subschema_for::<Detailed>();
        json_schema!({
            "description": "A command that may be run: a basename, or an object whose fields must all match.",
            "anyOf": [{ "type": "string", "minLength": 1 }, detailed],
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json, to_value};

    use super::*;

    #[test]
    fn a_string_equals_an_object_with_only_a_basename() {
        let short: AllowedCommand = from_str(r#""python3""#).unwrap();
        assert_eq!(from_str::<AllowedCommand>(r#"{"basename":"python3"}"#).unwrap(), short);
        assert_eq!(to_value(&short).unwrap(), "python3");
        let digest = "AB".repeat(32);
        let pinned = json!({ "path": "/usr/bin/x", "sha256": digest });
        let pinned: AllowedCommand = serde_json::from_value(pinned).unwrap();
        let wire = json!({ "path": "/usr/bin/x", "sha256": digest.to_lowercase() });
        assert_eq!(to_value(&pinned).unwrap(), wire);
    }

    #[test]
    fn an_invalid_command_is_refused_with_the_reason() {
        for (wire, reason) in [
            (r#""""#, "without a slash"),
            (r#""a/b""#, "without a slash"),
            ("{}", "want a basename"),
            (r#"{"sha256":"x"}"#, "64 hexadecimal"),
            (r#"{"path":"a"}"#, "absolute"),
            (r#"{"basename":"a","sha":"x"}"#, "unknown field"),
            ("7", "a basename, or an object"),
        ] {
            let fault = from_str::<AllowedCommand>(wire).unwrap_err().to_string();
            assert!(fault.contains(reason), "{wire}: {fault}");
        }
    }
}
