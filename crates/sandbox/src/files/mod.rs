//! The files of a sandbox: its own file system, its layers, masked paths and mounts.

pub(crate) mod layer_copy;
pub(crate) mod layers;
pub(crate) mod masked_paths;
pub(crate) mod mounts;
pub(crate) mod programs;
pub(crate) mod root_directory;
pub(crate) mod sandbox_fs;
pub(crate) mod unix_sockets;
pub(crate) mod unowned;
pub(crate) mod watched_disk;
