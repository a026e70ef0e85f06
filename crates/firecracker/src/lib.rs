//! The backend `firecracker`: each run in a sandbox in its own virtual machine.
//!
//! **Experimental until a real Firecracker has run a job.** So far it has run jobs on emulated machines
//! (QEMU) and against a scripted Firecracker API.
//!
//! [`Firecracker`] implements `cofferdam_core::executor::Executor`. [`MicroVms`] is the same over any
//! [`Hypervisor`]. A run goes as follows:
//! - `vmm` starts Firecracker, in its jailer if configured, and configures a machine over its API.
//! - `drive` passes the workspace to the guest as a stream on a drive without a file system, and reads
//!   the result from there.
//! - `session` exchanges frames with the guest over vsock: the run, its output and the report.
//! - [`guest`] is the guest side: the init of the machine, which runs the program in a sandbox.
//!
//! The host does not trust a guest. All data from it is bounded and validated, and all waits have a
//! deadline, after which the machine is killed.

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

/// Runs jobs in Firecracker machines.
pub type Firecracker = MicroVms<Vmm>;
