//! Directories a run works in: filling, writing into, collecting from, and removing them; never
//! processes.
//!
//! Every access is relative to a directory descriptor and resolved one name at a time without
//! links, so nothing a tenant left in a tree leads out of it. A tree is only ever walked with a
//! loop (`walk`): its depth costs memory in the heap, neither stack nor descriptors.

#![forbid(unsafe_code)]

mod artifacts;
mod copy;
mod error;
#[cfg(test)]
mod generated_tests;
mod put;
mod remove;
mod snapshot;
mod source;
mod status;
mod template;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod walk;

pub use crate::copy::fingerprint::Fingerprint;
pub use crate::walk::budget::{TreeLimit, TreeLimits};
pub use crate::walk::stop_check::StopCheck;
pub use artifacts::{
    ArtifactLimits, ArtifactRules, CollectedArtifacts, KeptFile, OMITTED_MAX, collect_artifacts,
};
pub use cofferdam_core::values::owner::Owner;
pub use copy::{Copied, copy_tree};
pub use error::WorkspaceError;
pub use put::{put, put_over_template};
pub use remove::{Removal, remove_tree};
pub use snapshot::{
    SnapshotContents, SnapshotLimits, SnapshotRules, Survey, survey, take_snapshot,
};
pub use source::SourceDir;
pub use template::{Fill, Owners, Template};
