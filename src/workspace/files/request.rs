//! Requests for files.

use serde::Deserialize;

use crate::workspace::error::EngineError;
use cofferdam_core::job::TextEncoding;

/// The permission bits that a file may have: set-id bits and the sticky bit are for none.
const MODE_MAX: u32 = 0o777;

/// The body of `POST W/files`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutFilesRequest {
    /// The files.
    pub files: Vec<NewFileRequest>,
}

/// One file of [`PutFilesRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewFileRequest {
    /// Its place, by the path rule.
    pub path: String,
    /// Its contents.
    #[serde(default)]
    pub content: String,
    /// How `content` is written.
    pub encoding: Option<TextEncoding>,
    /// Its permissions; 0 is 0644.
    pub mode: Option<u32>,
}

/// The body of `POST W/mkdir`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MkdirRequest {
    /// Its place, by the path rule.
    pub path: String,
    /// Its permissions; 0 is 0755.
    pub mode: Option<u32>,
}

/// The body of `POST W/move`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// What is moved.
    pub from: String,
    /// Where to.
    pub to: String,
    /// Whether a file there is replaced.
    pub overwrite: Option<bool>,
}

/// The body of `POST W/collect`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectRequest {
    /// Patterns of paths in the workspace.
    pub patterns: Vec<String>,
}

/// Which part of a directory is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListFilesQuery {
    /// The directory.
    pub path: String,
    /// Levels of directories.
    pub depth: usize,
    /// How many entries at most.
    pub limit: usize,
    /// The end of the page before.
    pub cursor: Option<String>,
}

/// The permissions that the field `path` names; 0 if it is absent.
///
/// # Errors
/// They have more than the permission bits.
pub fn mode(path: &str, mode: Option<u32>) -> Result<u32, EngineError> {
    match mode.unwrap_or_default() {
        mode if mode <= MODE_MAX => Ok(mode),
        _ => {
            Err(EngineError::invalid(path, "want permissions up to 511 (0777)")
                .with("max", MODE_MAX))
        }
    }
}
