//! A tree as a manifest and pieces of contents: written out, compared with what was written before, and
//! made again.
//!
//! The manifest lists all entries in the order of their paths. Contents are *extents* of at most
//! [`EXTENT_BYTES_MAX`] bytes, each named by its SHA-256, so that whoever keeps them keeps each once, and a
//! later manifest names those that did not change. Kept are kinds, modes, whether the tenant or root owns an
//! entry, times of modification, links, hard links, holes and fifos. Left out are extended attributes,
//! sockets and devices.

mod codec;
mod entry;
mod manifest;
mod restore;
#[cfg(test)]
mod tests;
mod write;

use std::io;

pub use entry::{EXTENT_BYTES_MAX, Extent, ExtentDigest, SavedEntry};
pub use manifest::ManifestReader;
pub use restore::restore_tree;
pub use write::{SaveOptions, SavedTotals, save_tree};

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
