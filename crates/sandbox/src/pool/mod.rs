//! What sandboxes reuse: network namespaces and id-mapped mounts.

pub(crate) mod host_id;
pub(crate) mod idmap;
#[allow(unsafe_code, reason = "system calls")]
pub(crate) mod namespace_holder;
pub(crate) mod net_namespaces;
