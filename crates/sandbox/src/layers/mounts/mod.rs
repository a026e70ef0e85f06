//! Mounts of layers and of what is seen through them.

#[allow(unsafe_code, reason = "system calls")]
pub(super) mod attributes;
#[allow(unsafe_code, reason = "system calls")]
pub(super) mod calls;
pub(super) mod layer;
pub(super) mod stage;
pub(super) mod view;
