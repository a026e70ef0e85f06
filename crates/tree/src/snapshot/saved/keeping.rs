//! What the extents of a tree are given to and taken from, and why that fails.

use std::io;

use super::entry::{Extent, ExtentDigest};
use crate::error::WorkspaceError;

/// Keeps extents while a tree is saved.
pub trait ExtentSink {
    /// Keeps `bytes`, unless an extent with this digest is kept already.
    ///
    /// # Errors
    /// They cannot be written.
    fn keep(&mut self, digest: &ExtentDigest, bytes: &[u8]) -> io::Result<()>;

    /// Notes that the tree still needs an extent that was kept for an earlier manifest.
    fn name(&mut self, extent: &Extent);
}

/// Gives extents back.
pub trait ExtentSource {
    /// Fills `bytes` with the extent that has this digest.
    ///
    /// # Errors
    /// It is missing, or has another length or digest.
    fn read(&mut self, digest: &ExtentDigest, bytes: &mut [u8]) -> io::Result<()>;
}

/// Why a tree could not be saved or restored.
#[derive(Debug, thiserror::Error)]
pub enum SavedTreeError {
    /// The tree could not be read or made.
    #[error("{0}")]
    Tree(#[from] WorkspaceError),
    /// The manifest or an extent could not be written or read.
    #[error("saved tree: {0}")]
    Kept(#[from] io::Error),
}
