//! The file systems of workspaces: layers in memory, frozen ones shared by overlays.
//!
//! A [`WorkspaceFs`](workspace_fs::WorkspaceFs) is one layer, or an overlay of its own writable layer over
//! frozen ones. Each layer is a file system with limits of its own, mounted only in the mount namespace
//! of one thread ([`mounts::stage`]). Sandboxes and the service get descriptors.

pub(crate) mod chain;
mod context;
mod disk;
pub(crate) mod error;
pub(crate) mod features;
pub(crate) mod frozen_view;
pub(crate) mod host;
mod ids;
mod merge;
pub(crate) mod mounts;
pub(crate) mod space;
pub(crate) mod workspace_fs;

#[cfg(test)]
mod tests;
