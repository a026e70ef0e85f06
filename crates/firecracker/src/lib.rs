//! The backend `firecracker`: each run in a box in a virtual machine of its own.
//!
//! The host asks Firecracker for a machine (`requests`, `api`, `jailer`, `vmm`), gives it a
//! workspace as a stream on a drive (`archive`, `pack`, `job_files`), and speaks with its first
//! program (`guest`) in frames over a socket (`frame`, `wire`, `line`, `run_session`). Whatever a guest
//! says is a stranger's word: it is bounded, checked, and waited for until a deadline, and then
//! the machine is killed.

#![forbid(unsafe_code)]

mod api;
mod archive;
#[cfg(test)]
mod backend_tests;
mod console;
mod frame;
pub mod guest;
#[cfg(test)]
mod hostile_guest_tests;
mod jailer;
mod job_files;
mod line;
mod machine;
mod micro_vms;
mod pack;
#[cfg(test)]
mod pack_tests;
mod programs;
mod requests;
mod talk;
mod vmm;
mod wire;

pub use jailer::Jailer;
pub use machine::{HOST_PORT, Hypervisor, Machine, MachinePlan, VSOCK, listen};
pub use micro_vms::{MicroVms, Settings};
pub use requests::GUEST_PROGRAM;
pub use vmm::Vmm;

/// Runs jobs in Firecracker's machines.
pub type Firecracker = MicroVms<Vmm>;
