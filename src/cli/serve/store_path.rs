//! Paths of stores, which need not exist.

use std::io;
use std::path::{Path, PathBuf};

/// The absolute `path`, with links resolved in the part that exists.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if let Some(path) = resolved(&path)? {
        return Ok(path);
    }
    let (parent, name) = (path.parent().unwrap_or(&path), path.file_name());
    let parent = resolved(parent)?.unwrap_or_else(|| parent.to_owned());
    Ok(name.map_or_else(|| parent.clone(), |name| parent.join(name)))
}

/// `path` with links resolved; `None` if it does not exist. A loop of links or a file in the path is
/// an error.
fn resolved(path: &Path) -> io::Result<Option<PathBuf>> {
    match path.canonicalize() {
        Ok(path) => Ok(Some(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
