//! The path of a workspace in sandboxes, in a record of the store: its text.

use serde::{Deserialize, Deserializer, Serializer, de};

use cofferdam_core::WorkspacePath;

/// Writes the path.
pub fn serialize<S: Serializer>(path: &WorkspacePath, to: S) -> Result<S::Ok, S::Error> {
    // It was parsed from a text.
    to.serialize_str(path.as_path().to_str().unwrap_or_default())
}

/// Reads the path.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<WorkspacePath, D::Error> {
    let text = String::deserialize(from)?;
    WorkspacePath::parse(&text).map_err(de::Error::custom)
}
