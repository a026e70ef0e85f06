//! `metadata.json`: what was staged into a workspace and collected from it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::constants::META_FILE_NAME;
use crate::workspace::error::{EngineCode, EngineError};
use cofferdam_core::values::utc::rfc3339;

/// The version of the file's format.
pub const METADATA_VERSION: i64 = 1;
/// The longest file that is read, bytes.
pub const METADATA_BYTES_MAX: u64 = 1 << 20;
/// How deep its values may be nested.
const DEPTH_MAX: usize = 64;

/// What was staged into a workspace and collected from it. Times are in RFC 3339.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkspaceMetadata {
    /// The version of the format.
    #[serde(deserialize_with = "or_default")]
    pub version: i64,
    /// When the file was made.
    #[serde(deserialize_with = "or_default")]
    pub created_at: String,
    /// When it was last written.
    #[serde(deserialize_with = "or_default")]
    pub updated_at: String,
    /// When the workspace was last used.
    #[serde(deserialize_with = "or_default")]
    pub last_access: String,
    /// The staged skills by name.
    #[serde(deserialize_with = "or_default")]
    pub skills: BTreeMap<String, SkillMeta>,
    /// The staged inputs, in the order of staging.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputRecord>,
    /// The collected outputs, in the order of collecting.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputRecord>,
    /// Keys that this version does not know. They stay.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A staged skill.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SkillMeta {
    /// The name.
    pub name: String,
    /// The path in the workspace.
    pub rel_path: String,
    /// The digest of the files.
    pub digest: String,
    /// Whether it is mounted instead of copied.
    pub mounted: bool,
    /// When it was staged.
    pub staged_at: String,
}

/// A staged input.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InputRecord {
    /// What was asked for.
    pub from: String,
    /// The path in the workspace.
    pub to: String,
    /// What it was found to be.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub resolved: String,
    /// The version of an artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// `link` or `copy`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// When it was staged.
    pub ts: String,
}

/// A collection of outputs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputRecord {
    /// The patterns.
    #[serde(deserialize_with = "or_default")]
    pub globs: Vec<String>,
    /// The artifacts that files were saved as.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub saved_as: Vec<String>,
    /// The versions of these artifacts.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<u64>,
    /// Whether a limit left out a file or a part of one.
    pub limits_hit: bool,
    /// When it was collected.
    pub ts: String,
}

/// Reads a value; null is the default, as for Go.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl WorkspaceMetadata {
    /// The metadata of a workspace in which nothing was staged, made at `now`.
    pub fn new(now: SystemTime) -> Self {
        let now = rfc3339(now);
        Self {
            version: METADATA_VERSION,
            created_at: now.clone(),
            updated_at: now.clone(),
            last_access: now,
            ..Self::default()
        }
    }

    /// Parses the contents of a file, which a program may have written.
    ///
    /// # Errors
    /// Why it cannot be metadata.
    pub fn parse(contents: &[u8]) -> Result<Self, String> {
        if u64::try_from(contents.len()).unwrap_or(u64::MAX) > METADATA_BYTES_MAX {
            return Err(format!("more than {METADATA_BYTES_MAX} bytes"));
        }
        if depth(contents) > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} levels deep"));
        }
        serde_json::from_slice(contents).map_err(|error| error.to_string())
    }

    /// The contents of the file.
    pub fn to_contents(&self) -> Vec<u8> {
        // Does not fail: the keys are strings.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }
}

/// How deep lists and objects are nested in `json`.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut is_escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Loads the metadata of the workspace in the directory `root`. A missing file is metadata in which
/// nothing was staged.
///
/// # Errors
/// The file cannot be read, or is no metadata. Links and special files are not opened.
pub fn load_metadata(root: &Path) -> Result<WorkspaceMetadata, EngineError> {
    let contents = match read(&root.join(META_FILE_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && root.is_dir() => {
            return Ok(WorkspaceMetadata::new(SystemTime::now()));
        }
        contents => contents.map_err(|error| cannot("read", &error))?,
    };
    WorkspaceMetadata::parse(&contents).map_err(|fault| {
        EngineError::new(EngineCode::InvalidRequest, format!("{META_FILE_NAME}: {fault}"))
            .with("path", META_FILE_NAME)
    })
}

/// Reads one byte more than metadata can have, which shows that the file is too long.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Neither follows a link nor waits for the writer of a pipe.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut contents = Vec::new();
    file.take(METADATA_BYTES_MAX.saturating_add(1)).read_to_end(&mut contents)?;
    Ok(contents)
}

/// Replaces the metadata of the workspace in the directory `root`, atomically. Sets `updated_at`.
/// Returns what was written.
///
/// # Errors
/// The file cannot be written.
pub fn save_metadata(
    root: &Path,
    metadata: &WorkspaceMetadata,
) -> Result<WorkspaceMetadata, EngineError> {
    let metadata = WorkspaceMetadata { updated_at: rfc3339(SystemTime::now()), ..metadata.clone() };
    // A name of its own: two writers at once must not share the unfinished file.
    let temporary = root.join(format!(".metadata-{}.tmp", uuid::Uuid::new_v4().simple()));
    let written = write_new(&temporary, &metadata.to_contents())
        .and_then(|()| fs::rename(&temporary, root.join(META_FILE_NAME)));
    written.map_err(|error| {
        // The first failure is the one to report.
        let _ = fs::remove_file(&temporary);
        cannot("write", &error)
    })?;
    Ok(metadata)
}

fn write_new(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

fn cannot(step: &str, error: &io::Error) -> EngineError {
    EngineError::new(EngineCode::IoFailed, format!("{step} {META_FILE_NAME}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    use serde_json::json;
    use tempfile::tempdir;

    use super::*;

    #[test]
    fn a_saved_file_is_loaded_as_it_was_and_only_its_owner_can_read_it() {
        let root = tempdir().unwrap();
        let mut metadata = WorkspaceMetadata::new(SystemTime::UNIX_EPOCH);
        let skill = SkillMeta { name: "s".to_owned(), mounted: true, ..SkillMeta::default() };
        metadata.skills.insert("s".to_owned(), skill);
        metadata.inputs.push(InputRecord { version: Some(0), ..InputRecord::default() });
        metadata.other.insert("prepared".to_owned(), json!({"a": [1]}));
        let saved = save_metadata(root.path(), &metadata).unwrap();
        assert_eq!(load_metadata(root.path()).unwrap(), saved);
        assert_ne!(saved.updated_at, metadata.updated_at);
        assert_eq!(
            WorkspaceMetadata { updated_at: metadata.updated_at.clone(), ..saved },
            metadata
        );
        let file = fs::metadata(root.path().join(META_FILE_NAME)).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "an unfinished file is left");
    }

    #[test]
    fn the_file_has_the_keys_of_the_seed() {
        let bare = WorkspaceMetadata::new(SystemTime::UNIX_EPOCH + Duration::from_millis(7));
        let time = "1970-01-01T00:00:00.007Z";
        let wanted = json!({"version": 1, "created_at": time, "updated_at": time,
                            "last_access": time, "skills": {}});
        assert_eq!(serde_json::to_value(&bare).unwrap(), wanted);
        let record = OutputRecord {
            globs: vec!["out/**".to_owned()],
            saved_as: vec!["a".to_owned()],
            versions: vec![0],
            limits_hit: true,
            ts: time.to_owned(),
        };
        let wanted = json!({"globs": ["out/**"], "saved_as": ["a"], "versions": [0],
                            "limits_hit": true, "ts": time});
        assert_eq!(serde_json::to_value(record).unwrap(), wanted);
        let wanted = json!({"from": "f", "to": "t", "ts": time});
        let record: InputRecord = serde_json::from_value(wanted.clone()).unwrap();
        assert_eq!(serde_json::to_value(record).unwrap(), wanted);
    }

    #[test]
    fn a_missing_file_has_defaults_and_a_damaged_one_is_an_error() {
        let root = tempdir().unwrap();
        let loaded = load_metadata(root.path()).unwrap();
        assert_eq!((loaded.version, loaded.skills.len()), (1, 0));
        assert!(loaded.created_at.ends_with('Z'));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "loading writes nothing");
        assert!(load_metadata(&root.path().join("missing")).is_err());
        let path = root.path().join(META_FILE_NAME);
        for text in ["", "{", "[]", r#"{"skills": []}"#, r#"{"version": "1"}"#, "{} {}"] {
            fs::write(&path, text).unwrap();
            let error = load_metadata(root.path()).unwrap_err();
            assert_eq!(error.code, EngineCode::InvalidRequest, "{text}");
        }
        fs::write(&path, r#"{"version": 1, "skills": null, "inputs": null, "more": 1}"#).unwrap();
        assert_eq!(load_metadata(root.path()).unwrap().other["more"], 1);
    }

    #[test]
    fn a_link_a_pipe_and_a_hostile_document_are_not_read() {
        let root = tempdir().unwrap();
        let path = root.path().join(META_FILE_NAME);
        fs::write(root.path().join("secret"), "{}").unwrap();
        symlink("secret", &path).unwrap();
        assert_eq!(load_metadata(root.path()).unwrap_err().code, EngineCode::IoFailed);
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(load_metadata(root.path()).unwrap_err().code, EngineCode::IoFailed);
        let nested = |levels: usize| {
            format!(r#"{{"a": {}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1))
        };
        assert!(WorkspaceMetadata::parse(nested(DEPTH_MAX).as_bytes()).is_ok());
        assert!(WorkspaceMetadata::parse(nested(DEPTH_MAX + 1).as_bytes()).is_err());
        let brackets_in_text = format!(r#"{{"a": "\"{}"}}"#, "[".repeat(100));
        assert!(WorkspaceMetadata::parse(brackets_in_text.as_bytes()).is_ok());
        let long = |bytes: u64| format!("{{}}{}", " ".repeat(usize::try_from(bytes).unwrap() - 2));
        assert!(WorkspaceMetadata::parse(long(METADATA_BYTES_MAX).as_bytes()).is_ok());
        assert!(WorkspaceMetadata::parse(long(METADATA_BYTES_MAX + 1).as_bytes()).is_err());
    }
}
