//! CgroupControl groups: a box's limits, what it used, and how all of it is killed.
//!
//! Version 1, version 2 and hosts that have both are served through the
//! files alone. Where both are there, version 2 kills, counts CPU time and
//! tells when a box is empty; limits come from whichever has the controller.
//!
//! No run ever writes another process's id into a group: that takes a
//! kernel-wide lock and, after any idle moment, 7 to 15 ms. A child is cloned
//! into its version 2 group and writes `0` into its version 1 `tasks` itself.
//!
//! Every box weighs the same on busy CPUs, however many processes and sessions
//! it has, and less when it has used more than most do. What makes a box is
//! our own work: on version 1 it stays out of the box's CPU group, on version 2
//! the box weighs more until its program begins.

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

pub use control::{CgroupVersion, ControlSupport};
pub use limit_files::CpuClass;
pub use sandbox_group::SandboxGroup;
pub use sweep::sweep;
pub use tree::{CgroupTree, SANDBOX_PREFIX};
pub use usage::GroupUsage;
