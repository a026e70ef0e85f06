//! Errors of files as errors of the engine.

use crate::workspace::error::{EngineCode, EngineError};
use cofferdam_tree::files::{FileLocation, FilesError, WorkspaceRoot};

/// The file that `path`, the value of the field `field`, names.
///
/// # Errors
/// It names none.
pub fn locate(
    root: &WorkspaceRoot<'_>,
    field: &str,
    path: &str,
) -> Result<FileLocation, EngineError> {
    root.locate(path).map_err(|error| {
        let error = engine_error(error);
        let words = format!("{field}: {}", error.message);
        EngineError::new(error.code, words).with("path", field)
    })
}

/// The error as clients get it. Paths are those that clients see.
pub fn engine_error(error: FilesError) -> EngineError {
    let words = error.to_string();
    let (code, path) = match error {
        FilesError::PathEscape { path } => (EngineCode::PathEscape, path),
        FilesError::PathTooLong { path } | FilesError::IntoItself { path } => {
            (EngineCode::InvalidRequest, path)
        }
        FilesError::NotFound { path } => (EngineCode::FileNotFound, path),
        FilesError::ThroughLink { path } => (EngineCode::FileThroughLink, path),
        FilesError::NotRegular { path } => (EngineCode::FileNotRegular, path),
        FilesError::Exists { path } => (EngineCode::FileExists, path),
        FilesError::ReadOnly { path } => (EngineCode::FileReadOnly, path),
        FilesError::NotEmpty { path } => (EngineCode::FileNotEmpty, path),
        FilesError::DiskFull { path } => (EngineCode::WorkspaceDiskFull, path),
        FilesError::TooLarge { path, .. } => (EngineCode::TooLarge, path),
        FilesError::ArchiveUnsafe { entry, .. } => (EngineCode::ArchiveUnsafe, entry),
        FilesError::BadPattern { index, .. } => {
            return EngineError::invalid(&format!("patterns[{index}]"), words);
        }
        FilesError::Stopped | FilesError::Input(_) | FilesError::Output(_) => {
            return EngineError::new(EngineCode::IoFailed, words);
        }
        FilesError::Io { path, .. } => {
            log::error!("file of a workspace: {words}");
            (EngineCode::IoFailed, path)
        }
    };
    EngineError::new(code, words).with("path", path.display().to_string())
}

/// The error of a tree that is written into a workspace. The limits are the workspace's own.
pub fn tree_error(error: FilesError) -> EngineError {
    let is_too_large = matches!(error, FilesError::TooLarge { .. });
    let error = engine_error(error);
    let code = if is_too_large { EngineCode::WorkspaceDiskFull } else { error.code };
    EngineError { code, ..error }
}
