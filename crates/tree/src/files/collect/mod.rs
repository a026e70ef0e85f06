//! Collects the contents of files that match patterns.

mod matches;
mod mime;
mod patterns;

use std::path::PathBuf;

use self::matches::{CollectMatches, collected};
use super::error::FilesError;
use super::read::{open_regular, read_at_most, size};
use super::resolve::WorkspaceRoot;

pub use self::matches::CollectOmission;

/// The most entries of the workspace that are visited, for all patterns together.
const ENTRIES_MAX: u64 = 1_000_000;

/// How much is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectLimits {
    /// Number of files.
    pub files_max: usize,
    /// Bytes of one file. A longer file is cut.
    pub file_bytes_max: usize,
    /// Bytes of all files together. The file that exceeds them is cut, and is the last.
    pub total_bytes_max: usize,
}

impl Default for CollectLimits {
    fn default() -> Self {
        Self { files_max: 1000, file_bytes_max: 4 << 20, total_bytes_max: 64 << 20 }
    }
}

/// A file that was collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectedFile {
    /// The path in the workspace, without links.
    pub name: PathBuf,
    /// The contents, or their beginning. A cut splits no character of UTF-8.
    pub content: Vec<u8>,
    /// The size of the file, bytes.
    pub size_bytes: u64,
    /// Whether the contents are cut.
    pub truncated: bool,
    /// The MIME type, guessed from the contents.
    pub mime_type: &'static str,
}

/// What was collected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectedFiles {
    /// The files: those of the first pattern sorted by name, then those that only the second matches, and so on.
    pub files: Vec<CollectedFile>,
    /// Matching entries that were not read, sorted by path.
    pub omitted: Vec<(PathBuf, CollectOmission)>,
    /// Whether a file was cut or left out because of a limit.
    pub limits_hit: bool,
}

/// Collects the regular files that match `patterns`, relative to the workspace. Wildcards enter no links; a directory
/// that is named can be one that stays in the workspace. A link to a file of the workspace counts as that file.
///
/// # Errors
/// [`FilesError::PathEscape`] and [`FilesError::BadPattern`] for a pattern, and [`FilesError::Io`] if the workspace
/// cannot be listed.
pub fn collect(
    root: &WorkspaceRoot<'_>,
    patterns: &[String],
    limits: CollectLimits,
) -> Result<CollectedFiles, FilesError> {
    let patterns = patterns::parse(patterns)?;
    let mut matches = CollectMatches::new(limits.files_max);
    let mut entries_left = ENTRIES_MAX;
    for (index, pattern) in patterns.iter().enumerate() {
        if let Some(pattern) = pattern {
            matches.search(root, (index, pattern), &mut entries_left)?;
        }
    }
    Ok(read_all(root, matches, limits))
}

/// Judges `patterns` as [`collect`] does.
///
/// # Errors
/// [`FilesError::PathEscape`] and [`FilesError::BadPattern`].
pub fn check_patterns(patterns: &[String]) -> Result<(), FilesError> {
    patterns::parse(patterns).map(drop)
}

fn read_all(
    root: &WorkspaceRoot<'_>,
    mut matches: CollectMatches,
    limits: CollectLimits,
) -> CollectedFiles {
    let mut files = Vec::new();
    let mut left = limits.total_bytes_max;
    for path in matches.take_paths() {
        if left == 0 {
            matches.limits_hit = true;
            break;
        }
        let bytes_max = limits.file_bytes_max.min(left);
        match read_one(root, path, bytes_max) {
            Ok(file) => {
                matches.limits_hit |= file.truncated;
                // Bytes of a character that was cut count too, so that a cut by this limit is the last.
                left -= if file.truncated { bytes_max } else { file.content.len() };
                files.push(file);
            }
            // It has disappeared.
            Err((_, FilesError::NotFound { .. })) => {}
            Err((path, FilesError::NotRegular { .. })) => {
                matches.omit(path, CollectOmission::NotRegular);
            }
            Err((path, _)) => matches.omit(path, CollectOmission::Unreadable),
        }
    }
    let omitted = std::mem::take(&mut matches.omitted).into_iter().collect();
    CollectedFiles { files, omitted, limits_hit: matches.limits_hit }
}

/// Reads the beginning of a file that is still regular, by a path without links.
fn read_one(
    root: &WorkspaceRoot<'_>,
    path: PathBuf,
    bytes_max: usize,
) -> Result<CollectedFile, (PathBuf, FilesError)> {
    let read = || {
        let ((file, stat), _) = open_regular(root.find(&collected(&path), false)?)?;
        let size_bytes = size(&stat);
        let wanted = usize::try_from(size_bytes).unwrap_or(usize::MAX).min(bytes_max);
        let mut content = vec![0; wanted];
        let count = read_at_most(&file, &mut content).map_err(FilesError::Input)?;
        content.truncate(count);
        Ok((content, size_bytes))
    };
    let (mut content, size_bytes) = read().map_err(|error| (path.clone(), error))?;
    let truncated = size_bytes > content.len() as u64;
    if truncated {
        cut_to_characters(&mut content);
    }
    let mime_type = mime::sniff(&content);
    Ok(CollectedFile { name: path, content, size_bytes, truncated, mime_type })
}

/// Removes the beginning of a character at the end of text.
fn cut_to_characters(content: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(content)
        && error.error_len().is_none()
    {
        content.truncate(error.valid_up_to());
    }
}
