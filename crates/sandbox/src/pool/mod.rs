//! What sandboxes reuse: host ids, network namespaces, and user namespaces for ID-mapped mounts.

pub(crate) mod egress_listener;
pub(crate) mod host_id;
pub(crate) mod idmap;
#[allow(unsafe_code, reason = "system calls")]
pub(crate) mod namespace_holder;
pub(crate) mod net_namespaces;
