//! Files in answers.

use serde::Serialize;

use crate::workspace::helpers::File;
use cofferdam_core::values::utc::rfc3339;
use cofferdam_tree::files::FileInfo;

/// One file, keys in the order of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileView {
    path: String,
    #[serde(rename = "type")]
    entry_type: &'static str,
    bytes: u64,
    mode: String,
    modified_at: String,
    target: Option<String>,
}

/// A page of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilePage {
    /// By path.
    pub entries: Vec<FileView>,
    /// The cursor of the next page; null at the end.
    pub next_cursor: Option<String>,
}

/// How many files were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WrittenView {
    /// The number.
    pub written: usize,
}

/// What was collected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CollectView {
    /// The files, by pattern and name.
    pub files: Vec<File>,
    /// Whether a limit left out a file or a part of one.
    pub limits_hit: bool,
}

/// The digest of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DigestView {
    /// SHA-256 in hexadecimal digits.
    pub digest: String,
    /// The number of its files.
    pub files: u64,
}

impl FileView {
    /// The file as it was found. Bytes of its names that are no text are replaced.
    pub fn of(info: &FileInfo) -> Self {
        Self {
            path: info.location.shown().display().to_string(),
            entry_type: info.entry_type.word(),
            bytes: info.bytes,
            mode: info.mode_text(),
            modified_at: rfc3339(info.modified),
            target: info.target.as_ref().map(|target| target.to_string_lossy().into_owned()),
        }
    }
}
