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
    /// Takes 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| Self(text.to_ascii_lowercase()))
    }

    /// What `digest` has taken.
    pub fn from_digest(digest: Digest) -> Self {
        Self(digest.finish())
    }

    /// Its digits.
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

/// A command that may be run: everything that is said of it has to hold. On the wire a bare text
/// is a basename.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedCommand {
    /// Its last part; it is looked for in the runner's own PATH alone, so that a file of the
    /// workspace never passes for it.
    pub basename: Option<String>,
    /// Where the executable is, absolute, in the box.
    pub path: Option<String>,
    /// What the file that is executed holds.
    pub sha256: Option<Sha256>,
}

/// The same as an object.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Detailed {
    /// Its last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    basename: Option<String>,
    /// Where the executable is, absolute, in the box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// What the file that is executed holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256>,
}

impl AllowedCommand {
    /// Any executable of that name in the runner's PATH.
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

/// Not serde's `untagged`, which forgets what was wrong with either.
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
            "description": "A command that may be run: a basename, or an object of which everything has to hold.",
            "anyOf": [{ "type": "string", "minLength": 1 }, detailed],
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json, to_value};

    use super::*;

    #[test]
    fn a_text_and_an_object_of_a_name_alone_are_the_same() {
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
    fn what_names_no_command_is_refused_with_the_reason() {
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
