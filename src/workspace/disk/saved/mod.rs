//! Workspaces and snapshots in the store.
//!
//! ```text
//! <store>/workspaces/<id>/   settings.json manifest-<n> extents/<sha256>
//! <store>/snapshots/<id>/    the same
//! ```
//!
//! `settings.json` names the manifest, so that a save is done when it is replaced: everything that it needs
//! is on the disk before, and what it no longer needs is removed after. What a killed service has left
//! besides is removed when the store is opened.

mod extents;
mod files;
mod record;
mod store;
mod sweep;

pub use record::{SavedMounts, SavedRecord, SavedUsage};
pub use store::{SavedKind, SavedStore, Saving};
