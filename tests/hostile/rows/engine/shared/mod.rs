//! Sandboxes that all programs of a workspace share.

pub mod init;
pub mod kernels;
pub mod programs;
