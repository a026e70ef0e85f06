//! Reads files of a workspace.

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::error::{engine_error, locate};
use super::request::ListFilesQuery;
use super::view::{DigestView, FilePage, FileView};
use crate::workspace::error::EngineError;
use crate::workspace::helpers::WorkspaceMetadata;
use crate::workspace::service::live::WorkspaceUse;
use cofferdam_tree::files::{self, DirectoryDigest, DirectoryPage, ListRange, OpenedFile};
use cofferdam_tree::{StopCheck, TreeLimits};

/// Opens a regular file.
///
/// # Errors
/// The file does not exist, or a link leads out of the workspace.
pub fn open_file(used: &WorkspaceUse, path: &str) -> Result<OpenedFile, EngineError> {
    used.workspace()
        .with_root(|root| files::get(root, &locate(root, "path", path)?).map_err(engine_error))
}

/// The status of a file. A link itself is described.
///
/// # Errors
/// The file does not exist.
pub fn file_status(used: &WorkspaceUse, path: &str) -> Result<FileView, EngineError> {
    used.workspace().with_root(|root| {
        let info = files::stat(root, &locate(root, "path", path)?).map_err(engine_error)?;
        Ok(FileView::of(&info))
    })
}

/// Lists a directory.
///
/// # Errors
/// The directory does not exist, or the cursor is not one of ours.
pub fn list_files(used: &WorkspaceUse, query: &ListFilesQuery) -> Result<FilePage, EngineError> {
    let decode = |cursor: &String| URL_SAFE_NO_PAD.decode(cursor);
    let after = query.cursor.as_ref().map(decode).transpose();
    let after = after.map_err(|_| EngineError::invalid("cursor", "want a next_cursor"))?;
    let (depth, entries_max) = (query.depth, query.limit);
    let range = ListRange { depth, entries_max, after: after.as_deref() };
    used.workspace().with_root(|root| {
        let location = locate(root, "path", &query.path)?;
        let DirectoryPage { entries, next } =
            files::list(root, &location, range).map_err(engine_error)?;
        let next_cursor = next.map(|next| URL_SAFE_NO_PAD.encode(next));
        Ok(FilePage { entries: entries.iter().map(FileView::of).collect(), next_cursor })
    })
}

/// The digest of a directory.
///
/// # Errors
/// The file does not exist.
pub fn tree_digest(used: &WorkspaceUse, path: &str) -> Result<DigestView, EngineError> {
    let stop = || used.workspace().is_over();
    used.workspace().with_root(|root| {
        let location = locate(root, "path", path)?;
        let digest = files::digest(root, &location, &TreeLimits::default(), StopCheck(&stop));
        let DirectoryDigest { digest, files, .. } = digest.map_err(engine_error)?;
        Ok(DigestView { digest, files })
    })
}

/// The records of the workspace. A file that holds none counts as absent.
///
/// # Errors
/// The file cannot be read.
pub fn load_metadata(used: &WorkspaceUse) -> Result<WorkspaceMetadata, EngineError> {
    let contents = used.workspace().with_root(files::load_metadata).map_err(engine_error)?;
    let parsed = contents.and_then(|contents| WorkspaceMetadata::parse(&contents).ok());
    Ok(parsed.unwrap_or_else(|| WorkspaceMetadata::new(SystemTime::now())))
}
