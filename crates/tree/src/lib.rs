//! Directory trees that untrusted programs may have prepared: copy, snapshot, write into, collect
//! from and remove them.
//!
//! - [`copy_tree`] copies a tree for one owner, within [`TreeLimits`]; [`measure_tree`] returns the space beforehand.
//! - [`take_snapshot`] copies the part of a [`SourceDir`] that [`SnapshotRules`] select, and returns a
//!   digest; [`survey`] returns the size beforehand.
//! - [`collect_artifacts`] copies the files that [`ArtifactRules`] select.
//! - [`put`] and [`put_over_template`] write one file, [`remove_tree`] removes a tree.
//! - [`apply_layer`] makes one layer of an overlay out of two, [`digest_tree`] digests what is seen.
//! - [`saved`] writes a tree out, only what changed, and makes it again.
//! - [`files`] reads and changes the files of a workspace while its programs run, packs and unpacks archives.
//! - [`Template`] counts what a directory holds and detects changes ([`Fingerprint`]).
//!
//! Every access is relative to a directory descriptor and resolves one name at a time without links,
//! so nothing in a tree leads out of it. Trees are walked in a loop: depth costs heap memory, but
//! neither stack nor descriptors. The crate needs Linux 5.6 (`openat2`) and starts no processes.

#![forbid(unsafe_code)]

mod artifacts;
mod copy;
mod error;
pub mod files;
mod layer;
mod put;
mod remove;
mod snapshot;
mod source;
mod status;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod walk;

pub use crate::copy::fingerprint::Fingerprint;
pub use crate::walk::budget::{TreeLimit, TreeLimits};
pub use crate::walk::open_scoped::open_scoped;
pub use crate::walk::stop_check::StopCheck;
pub use artifacts::{
    ArtifactLimits, ArtifactRules, CollectedArtifacts, KeptFile, OMITTED_MAX, collect_artifacts,
};
pub use cofferdam_core::values::owner::Owner;
pub use copy::measure::measure_tree;
pub use copy::template::{Fill, Owners, Template};
pub use copy::{Copied, copy_selected, copy_tree, copy_tree_until};
pub use error::WorkspaceError;
pub use layer::apply::{ApplyOptions, LayerTarget, apply_layer};
pub use layer::attributes::{ExtendedAttributes, LayerMarks};
pub use layer::digest::{TreeDigest, digest_tree};
pub use layer::redirects::{READ_ONLY_TREES, add_redirects, reveal_redirects};
pub use put::{put, put_if_absent, put_over_template};
pub use remove::{Removal, remove_tree, remove_tree_until};
pub use snapshot::saved;
pub use snapshot::{
    SnapshotContents, SnapshotLimits, SnapshotRules, Survey, survey, take_snapshot,
};
pub use source::SourceDir;
