//! Collects files that programs have made.

use super::error::engine_error;
use super::patterns::relative_patterns;
use super::request::CollectRequest;
use super::view::CollectView;
use crate::workspace::error::EngineError;
use crate::workspace::helpers::File;
use crate::workspace::request::encode;
use crate::workspace::service::live::WorkspaceUse;
use crate::workspace::service::span::Span;
use cofferdam_tree::files::{self, CollectLimits, CollectedFile, CollectedFiles};

/// Collects the files that match patterns, with their contents.
///
/// # Errors
/// A pattern is malformed or leaves the workspace.
pub fn collect_files(
    used: &WorkspaceUse,
    request: &CollectRequest,
) -> Result<CollectView, EngineError> {
    let span = Span::begin("workspace.collect");
    let live = used.workspace();
    let top = live.settings.path.as_path();
    let patterns = relative_patterns("patterns", &request.patterns, Some(top))?;
    let limits = CollectLimits::default();
    let collected = live.with_root(|root| files::collect(root, &patterns, limits));
    let CollectedFiles { files, limits_hit, .. } = collected.map_err(engine_error)?;
    span.end_collect(&live.id, patterns.len(), files.len());
    Ok(CollectView { files: files.into_iter().map(file).collect(), limits_hit })
}

fn file(collected: CollectedFile) -> File {
    let CollectedFile { name, content, size_bytes, truncated, mime_type } = collected;
    let (encoding, content) = encode(content);
    let (name, mime_type) = (name.display().to_string(), mime_type.to_owned());
    File { name, content, encoding, mime_type, size_bytes, truncated }
}
