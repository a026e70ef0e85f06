//! Layers on disk: sparse images on loop devices.

pub(super) mod image;
#[allow(unsafe_code, reason = "system calls")]
mod loop_device;
mod template;
