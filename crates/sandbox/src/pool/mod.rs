//! What sandboxes reuse: network namespaces and id-mapped mounts.

pub(crate) mod idmap;
pub(crate) mod net_namespaces;
