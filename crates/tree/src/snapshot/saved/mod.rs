//! A tree as a manifest and pieces of contents: written out, compared with what was written before, and
//! made again.
//!
//! The manifest lists all entries in the order of their paths. Contents are *extents* of at most
//! [`EXTENT_BYTES_MAX`] bytes, each named by its SHA-256, so that a store keeps each once, and a
//! later manifest names those that did not change. Kept are kinds, modes, whether the tenant or root owns an
//! entry, times of modification, links, hard links, holes and fifos. Left out are extended attributes,
//! sockets and devices.

mod codec;
mod entry;
mod keeping;
mod manifest;
mod restore;
#[cfg(test)]
mod tests;
mod write;

pub use entry::{EXTENT_BYTES_MAX, Extent, ExtentDigest, SavedEntry};
pub use keeping::{ExtentSink, ExtentSource, SavedTreeError};
pub use manifest::ManifestReader;
pub use restore::restore_tree;
pub use write::{SaveOptions, SavedTotals, save_tree};
