//! Which directories of lower layers the directories of a layer lead to.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use super::attributes::LayerMarks;
use crate::error::{During, WorkspaceError};
use crate::walk::{TreeWalk, WalkEvent};

/// The directory at the root of a workspace's file system in which the read-only trees lie that directories lead to. It is
/// no part of the files: the kernel knows a directory of a lower layer by one path only, so no walk enters it.
pub const READ_ONLY_TREES: &CStr = c"m";

/// Lets the directories of the layer with these `entries` that lead to `path` show what lies there. Overlayfs marks a
/// directory opaque that gets a new name in a directory of lower layers.
///
/// # Errors
/// The layer cannot be read or written.
pub fn reveal_redirects(
    entries: BorrowedFd<'_>,
    marks: LayerMarks<'_>,
    path: &[u8],
) -> Result<(), WorkspaceError> {
    let walk = TreeWalk::to_choose(entries, u64::MAX).during("list");
    let mut walk = walk.map_err(|fault| fault.at("."))?;
    while let Some(event) = walk.advance()? {
        if let WalkEvent::Enter { .. } = event {
            let revealed = marks.reveal(walk.directory(), path);
            revealed.map_err(|fault| fault.at(walk.path()))?;
        }
    }
    Ok(())
}

/// Adds to `found` the paths to which directories of the layer with these `entries` lead, by
/// [`LayerMarks::set_redirect`].
///
/// # Errors
/// The layer cannot be read.
pub fn add_redirects(
    entries: BorrowedFd<'_>,
    marks: LayerMarks<'_>,
    found: &mut BTreeSet<Vec<u8>>,
) -> Result<(), WorkspaceError> {
    let walk = TreeWalk::to_choose(entries, u64::MAX).during("list");
    let mut walk = walk.map_err(|fault| fault.at("."))?;
    while let Some(event) = walk.advance()? {
        if let WalkEvent::Enter { .. } = event {
            let redirect = marks.redirect(walk.directory());
            found.extend(redirect.map_err(|fault| fault.at(walk.path()))?);
        }
    }
    Ok(())
}
