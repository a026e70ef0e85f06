//! Changes files of a workspace.

use std::io::Read;

use super::error::{engine_error, locate};
use super::request::{MkdirRequest, MoveRequest, NewFileRequest, PutFilesRequest, mode};
use super::view::{FileView, WrittenView};
use crate::workspace::error::EngineError;
use crate::workspace::request::decode;
use crate::workspace::service::live::WorkspaceUse;
use crate::workspace::service::span::Span;
use cofferdam_tree::TreeLimits;
use cofferdam_tree::files::{self, FileLocation, NewFile, WorkspaceRoot};

/// The most bytes that a file takes besides its contents.
const PAGE_BYTES: u64 = 4096;

/// Writes all files, or none.
///
/// # Errors
/// The first one that cannot be written.
pub fn put_files(
    used: &mut WorkspaceUse,
    request: PutFilesRequest,
) -> Result<WrittenView, EngineError> {
    let span = Span::begin("workspace.stage.files");
    let mut contents = Vec::with_capacity(request.files.len());
    for (index, file) in request.files.into_iter().enumerate() {
        let NewFileRequest { path, content, encoding, mode: asked } = file;
        let field = |name: &str| format!("files[{index}].{name}");
        let content = decode(encoding.unwrap_or_default(), &field("content"), content)?;
        contents.push((index, path, content, mode(&field("mode"), asked)?));
    }
    let sizes = contents.iter().map(|(_, _, content, _)| content.len() as u64 + PAGE_BYTES);
    used.reserve(sizes.sum())?;
    let live = used.workspace();
    live.with_root(|root| {
        let located = contents.iter().map(|(index, path, content, mode)| {
            let location = locate(root, &format!("files[{index}].path"), path)?;
            Ok((location, content.as_slice(), *mode))
        });
        let located = located.collect::<Result<Vec<_>, EngineError>>()?;
        let new = located.iter().map(|(location, content, mode)| NewFile {
            location,
            content,
            mode: *mode,
        });
        files::put_files(root, &new.collect::<Vec<_>>()).map_err(engine_error)
    })?;
    span.end_counted(&live.id, contents.len());
    Ok(WrittenView { written: contents.len() })
}

/// Writes one file from `source`, whose length may be known. The second value is whether it is new.
///
/// # Errors
/// It cannot be written. An existing file is unchanged then.
pub fn put_file(
    used: &mut WorkspaceUse,
    path: &str,
    mode: u32,
    bytes: Option<u64>,
    source: &mut dyn Read,
) -> Result<(FileView, bool), EngineError> {
    used.reserve(bytes.map_or(u64::MAX, |bytes| bytes.saturating_add(PAGE_BYTES)))?;
    used.workspace().with_root(|root| {
        let location = locate(root, "path", path)?;
        let is_new = files::put_file(root, &location, source, mode).map_err(engine_error)?;
        Ok((status(root, &location)?, is_new))
    })
}

/// Removes a file, a link, an empty directory, or with `recursive` a directory with everything in
/// it.
///
/// # Errors
/// The file does not exist, or is a directory with entries.
pub fn remove_file(
    used: &mut WorkspaceUse,
    path: &str,
    recursive: bool,
) -> Result<(), EngineError> {
    // Nothing is written; the space that becomes free is taken off the account.
    used.reserve(0)?;
    used.workspace().with_root(|root| {
        files::delete(root, &locate(root, "path", path)?, recursive).map_err(engine_error)
    })
}

/// Makes a directory, and missing ones above it.
///
/// # Errors
/// There is something.
pub fn make_directory(
    used: &mut WorkspaceUse,
    request: &MkdirRequest,
) -> Result<FileView, EngineError> {
    let mode = mode("mode", request.mode)?;
    used.reserve(0)?;
    used.workspace().with_root(|root| {
        let location = locate(root, "path", &request.path)?;
        files::make_directory(root, &location, mode).map_err(engine_error)?;
        status(root, &location)
    })
}

/// Moves a file or a directory.
///
/// # Errors
/// The file does not exist, or its new path does.
pub fn move_file(used: &mut WorkspaceUse, request: &MoveRequest) -> Result<FileView, EngineError> {
    used.reserve(0)?;
    let overwrite = request.overwrite.unwrap_or_default();
    used.workspace().with_root(|root| {
        let from = locate(root, "from", &request.from)?;
        let to = locate(root, "to", &request.to)?;
        files::move_entry(root, (&from, &to), overwrite, &TreeLimits::default())
            .map_err(engine_error)?;
        status(root, &to)
    })
}

fn status(root: &WorkspaceRoot<'_>, location: &FileLocation) -> Result<FileView, EngineError> {
    files::stat(root, location).map(|info| FileView::of(&info)).map_err(engine_error)
}
