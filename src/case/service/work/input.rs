//! Which case file a request means, and whether it may.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::case::file::{CaseCode, CaseFinding};
use crate::case::run::case_file;
use crate::case::service::error::CaseRunsError;
use crate::case::service::settings::CaseServiceSettings;
use crate::policy::WorkspaceRoots;

/// The name of a case file in its directory.
const CASE_FILE: &str = "case.yaml";
/// The most files and directories of a Case that was sent.
const ENTRIES_MAX: u64 = 100_000;

/// The case file at `path`, with every link followed. Below the roots a client learns whether there is one.
///
/// # Errors
/// It is not below a root, or is not there.
pub fn locate(path: &Path, settings: &CaseServiceSettings) -> Result<PathBuf, CaseRunsError> {
    if !path.is_absolute() {
        return Err(CaseRunsError::invalid("path", "want an absolute path"));
    }
    let has_parent = path.components().any(|part| part == Component::ParentDir);
    match case_file(path).canonicalize() {
        Ok(found) if is_below(&found, settings) => Ok(found),
        Err(_) if !has_parent && is_below(path, settings) => {
            Err(missing(&format!("there is no case file '{}'", path.display())))
        }
        _ => Err(CaseRunsError::PathDenied),
    }
}

/// Whether a path without links is below a root and not in the store, which has the runs of others.
fn is_below(path: &Path, settings: &CaseServiceSettings) -> bool {
    let is_in_store = path.starts_with(&settings.store_dir)
        || settings.store_dir.canonicalize().is_ok_and(|store| path.starts_with(store));
    let is_allowed = match &settings.roots {
        WorkspaceRoots::Any => true,
        WorkspaceRoots::Only(roots) => {
            roots.iter().any(|root| root.is_absolute() && path.starts_with(root))
        }
    };
    is_allowed && !is_in_store
}

/// Directories of this host that a Case below the roots may name.
pub fn readable(settings: &CaseServiceSettings) -> Vec<PathBuf> {
    match &settings.roots {
        WorkspaceRoots::Any => vec![PathBuf::from("/")],
        WorkspaceRoots::Only(roots) => roots.clone(),
    }
}

/// The directory of the case file in `directory`, relative to it: the directory itself, or the only one in it.
///
/// # Errors
/// There is no case file, or the files are too many or too large.
pub fn locate_staged(directory: &Path, bytes_max: u64) -> Result<PathBuf, CaseRunsError> {
    let unreadable = |error: io::Error| CaseRunsError::Store(format!("files of a Case: {error}"));
    let size = TreeSize::of(directory, bytes_max).map_err(unreadable)?;
    if size.bytes > bytes_max || size.entries > ENTRIES_MAX {
        return Err(CaseRunsError::TooLarge { bytes_max });
    }
    let is_case = |directory: &Path| {
        fs::symlink_metadata(directory.join(CASE_FILE)).is_ok_and(|found| found.is_file())
    };
    if is_case(directory) {
        return Ok(PathBuf::new());
    }
    let mut entries = fs::read_dir(directory).map_err(unreadable)?;
    if let (Some(Ok(only)), None) = (entries.next(), entries.next())
        && only.file_type().is_ok_and(|kind| kind.is_dir())
        && is_case(&only.path())
    {
        return Ok(PathBuf::from(only.file_name()));
    }
    Err(missing("the archive has no 'case.yaml' at its top, or in the one directory there"))
}

fn missing(words: &str) -> CaseRunsError {
    CaseRunsError::InvalidCase { errors: vec![CaseFinding::of_file(CaseCode::NotFound, words)] }
}

/// How much a tree holds, counted until it is too much.
#[derive(Debug, Default)]
struct TreeSize {
    bytes: u64,
    entries: u64,
}

impl TreeSize {
    fn of(directory: &Path, bytes_max: u64) -> io::Result<Self> {
        let mut size = Self::default();
        let mut pending = vec![directory.to_owned()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                let found = fs::symlink_metadata(entry.path())?;
                size.entries += 1;
                if found.is_dir() {
                    pending.push(entry.path());
                } else {
                    size.bytes = size.bytes.saturating_add(found.len());
                }
                if size.bytes > bytes_max || size.entries > ENTRIES_MAX {
                    return Ok(size);
                }
            }
        }
        Ok(size)
    }
}
