//! Mounts of layers and of what is seen through them.

#[allow(unsafe_code, reason = "system calls")]
pub(super) mod attributes;
#[allow(unsafe_code, reason = "system calls")]
pub(super) mod calls;
mod chain_trees;
pub(super) mod layer;
pub(crate) mod overlaid;
mod owner_map;
pub(crate) mod read_only;
pub(super) mod stage;
pub(super) mod view;
