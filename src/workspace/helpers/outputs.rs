//! Which outputs to collect, and what was collected.

use std::fmt;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use cofferdam_core::job::TextEncoding;

/// Which outputs to collect. A limit of 0 is the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OutputSpec {
    /// Patterns of paths below the workspace.
    pub globs: Vec<String>,
    /// Files at most.
    pub max_files: u64,
    /// Bytes of each file at most.
    pub max_file_bytes: u64,
    /// Bytes of all files at most.
    pub max_total_bytes: u64,
    /// Whether to save each file as an artifact.
    pub save: bool,
    /// How the names of the artifacts are made.
    pub name_template: String,
    /// Whether to return the contents.
    pub inline: bool,
}

/// What was collected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputManifest {
    /// The files.
    pub files: Vec<FileRef>,
    /// Whether a limit left out a file or a part of one.
    pub limits_hit: bool,
    /// Matching entries that were not read.
    #[serde(default)]
    pub omitted: Vec<OmittedOutput>,
}

/// An entry that matches, and was not collected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedOutput {
    /// The path in the workspace.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// A collected file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileRef {
    /// The path in the workspace.
    pub name: String,
    /// The media type.
    pub mime_type: String,
    /// The content, if it was asked for.
    pub content: String,
    /// The encoding of `content`.
    pub encoding: TextEncoding,
    /// The name of the artifact that it was saved as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_as: Option<String>,
    /// The version of the artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The size of the file.
    pub size_bytes: u64,
    /// Whether only the beginning was collected.
    pub truncated: bool,
}

/// The keys of an [`OutputSpec`].
const KEYS: [&str; 7] =
    ["globs", "max_files", "max_file_bytes", "max_total_bytes", "save", "name_template", "inline"];

/// The values of one style of keys; `None` for an absent or null value.
#[derive(Default)]
struct SpecValues {
    globs: Option<Vec<String>>,
    max_files: Option<u64>,
    max_file_bytes: Option<u64>,
    max_total_bytes: Option<u64>,
    save: Option<bool>,
    name_template: Option<String>,
    inline: Option<bool>,
}

/// Reads a value; null changes nothing.
fn set<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    field: &mut Option<T>,
    map: &mut A,
) -> Result<(), A::Error> {
    if let Some(value) = map.next_value::<Option<T>>()? {
        *field = Some(value);
    }
    Ok(())
}

impl SpecValues {
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "globs" => set(&mut self.globs, map),
            "max_files" => set(&mut self.max_files, map),
            "max_file_bytes" => set(&mut self.max_file_bytes, map),
            "max_total_bytes" => set(&mut self.max_total_bytes, map),
            "save" => set(&mut self.save, map),
            "name_template" => set(&mut self.name_template, map),
            "inline" => set(&mut self.inline, map),
            _ => map.next_value::<IgnoredAny>().map(|_| ()),
        }
    }

    /// These values, and those of `legacy` for the keys that are missing.
    fn or(self, legacy: Self) -> OutputSpec {
        OutputSpec {
            globs: self.globs.or(legacy.globs).unwrap_or_default(),
            max_files: self.max_files.or(legacy.max_files).unwrap_or_default(),
            max_file_bytes: self.max_file_bytes.or(legacy.max_file_bytes).unwrap_or_default(),
            max_total_bytes: self.max_total_bytes.or(legacy.max_total_bytes).unwrap_or_default(),
            save: self.save.or(legacy.save).unwrap_or_default(),
            name_template: self.name_template.or(legacy.name_template).unwrap_or_default(),
            inline: self.inline.or(legacy.inline).unwrap_or_default(),
        }
    }
}

/// Refuses the value of a key, whose path the error then has.
struct UnknownKey<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for UnknownKey<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, _: D) -> Result<(), D::Error> {
        Err(D::Error::unknown_field(self.0, &KEYS))
    }
}

struct SpecVisitor;

impl<'de> Visitor<'de> for SpecVisitor {
    type Value = OutputSpec;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object that says which outputs to collect")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OutputSpec, A::Error> {
        let (mut snake, mut legacy) = (SpecValues::default(), SpecValues::default());
        while let Some(key) = map.next_key::<String>()? {
            // A key of Go is that of a field, in any case: `MaxFiles`.
            let of_go = |name: &&str| name.replace('_', "").eq_ignore_ascii_case(&key);
            if KEYS.contains(&key.as_str()) {
                snake.read(&key, &mut map)?;
            } else if let Some(name) = KEYS.iter().find(|name| of_go(name)) {
                legacy.read(name, &mut map)?;
            } else {
                map.next_value_seed(UnknownKey(&key))?;
            }
        }
        Ok(snake.or(legacy))
    }
}

/// Takes keys in snake case, and those of Go in any case. Where both are there, snake case wins. A
/// null changes nothing.
impl<'de> Deserialize<'de> for OutputSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SpecVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> OutputSpec {
        OutputSpec {
            globs: vec!["out/*.txt".to_owned()],
            max_files: 7,
            max_file_bytes: 11,
            max_total_bytes: 13,
            save: true,
            name_template: "pre/".to_owned(),
            inline: true,
        }
    }

    #[test]
    fn both_styles_of_keys_name_the_same_values() {
        let snake = r#"{"globs": ["out/*.txt"], "max_files": 7, "max_file_bytes": 11,
            "max_total_bytes": 13, "save": true, "name_template": "pre/", "inline": true}"#;
        let go = r#"{"Globs": ["out/*.txt"], "MaxFiles": 7, "maxFileBytes": 11,
            "MAXTOTALBYTES": 13, "Save": true, "nametemplate": "pre/", "Inline": true}"#;
        for text in [snake, go] {
            assert_eq!(serde_json::from_str::<OutputSpec>(text).unwrap(), spec(), "{text}");
        }
        let written = serde_json::to_string(&spec()).unwrap();
        assert_eq!(serde_json::from_str::<OutputSpec>(&written).unwrap(), spec());
    }

    #[test]
    fn snake_case_wins_and_null_changes_nothing() {
        for (text, max_files) in [
            (r#"{"MaxFiles": 1, "max_files": 2}"#, 2),
            (r#"{"max_files": 2, "MaxFiles": 1}"#, 2),
            (r#"{"MaxFiles": 1, "max_files": null}"#, 1),
            (r#"{"max_files": null, "MaxFiles": 1}"#, 1),
            (r#"{"max_files": 2, "MaxFiles": null}"#, 2),
            (r#"{"max_files": 2, "MaxFiles": 0}"#, 2),
            (r#"{"MaxFiles": 1, "max_files": 0}"#, 0),
            (r#"{"MaxFiles": null}"#, 0),
            ("{}", 0),
        ] {
            let read: OutputSpec = serde_json::from_str(text).unwrap();
            assert_eq!(read, OutputSpec { max_files, ..OutputSpec::default() }, "{text}");
        }
    }

    #[test]
    fn wrong_values_and_unknown_keys_are_errors() {
        for text in [
            "{",
            "[]",
            r#"{"max_files": "x"}"#,
            r#"{"max_files": -1}"#,
            r#"{"max_files": 1.5}"#,
            r#"{"MaxFiles": "x", "max_files": 1}"#,
            r#"{"globs": "x"}"#,
            r#"{"save": 1}"#,
            r#"{"max_fils": 1}"#,
            r#"{"Max_Files_": 1}"#,
        ] {
            assert!(serde_json::from_str::<OutputSpec>(text).is_err(), "{text}");
        }
    }
}
