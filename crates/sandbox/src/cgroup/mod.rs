//! Cgroups: the limits of a sandbox, its usage, and the kill of all its processes.
//!
//! Hosts with version 1, version 2 or both are supported, through the files alone. Where both
//! exist, version 2 kills, counts CPU time and reports when a sandbox is empty. Limits come from
//! the version that has the controller.
//!
//! No run writes the id of another process into a group: that takes a kernel-wide lock and, after
//! an idle moment, 7 to 15 ms. A child is cloned into its version 2 group, and writes `0` into its
//! version 1 `tasks` files itself.
//!
//! On busy CPUs every sandbox has the same weight, however many processes and sessions it has, and
//! less once it has used more CPU time than most runs do. Creating a sandbox is the supervisor's
//! work: on version 1 it happens outside of the sandbox's CPU group, on version 2 the sandbox has a
//! higher weight until its program begins.

mod control;
mod delegation;
mod directory;
mod hierarchy;
mod layout;
mod limit_files;
mod reclaim;
mod sandbox_group;
mod sweep;
mod termination;
#[cfg(test)]
mod tests;
mod tree;
mod usage;

pub use control::{CgroupSupport, CgroupVersion, ControlSupport};
pub use limit_files::CpuClass;
pub use sandbox_group::SandboxGroup;
pub use sweep::sweep;
pub use tree::{CgroupTree, SANDBOX_PREFIX};
pub use usage::GroupUsage;
