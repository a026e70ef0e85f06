//! Inputs and directories that are staged into a workspace, and outputs that are saved from it.

pub mod mounted;
pub mod outputs;
pub mod staging;
pub mod trees;
