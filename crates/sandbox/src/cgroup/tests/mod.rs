//! Cgroups on a fake kernel and on this host.

pub mod fake_kernel;
mod host;
mod host_cpu;
mod host_v1;
mod layout;
mod shared_v1;
mod unified;
