//! The backend `firecracker`: each run in a box in a virtual machine of its own.
//!
//! The host asks Firecracker for a machine (`requests`, `api`, `jailer`, `vmm`), gives it a
//! workspace as a stream on a drive (`archive`, `pack`, `job_files`), and speaks with its first
//! program (`guest`) in frames over a socket (`frame`, `wire`, `line`, `run_session`). Whatever a guest
//! says is a stranger's word: it is bounded, checked, and waited for until a deadline, and then
//! the machine is killed.

#![forbid(unsafe_code)]

#[cfg(test)]
mod backend_tests;
mod drive;
pub mod guest;
#[cfg(test)]
mod hostile_guest_tests;
mod machine;
mod micro_vms;
mod programs;
mod session;
mod socket;
mod vmm;

pub use machine::{HOST_PORT, Hypervisor, Machine, MachinePlan, VSOCK, listen};
pub use micro_vms::{MicroVms, Settings};
pub use vmm::Vmm;
pub use vmm::jailer::Jailer;
pub use vmm::requests::GUEST_PROGRAM;

/// Runs jobs in Firecracker's machines.
pub type Firecracker = MicroVms<Vmm>;
