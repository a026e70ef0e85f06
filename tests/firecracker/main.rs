//! The backend `firecracker`, from its public face: over a scripted API socket (`scripted`), with
//! a real guest under QEMU (`emulated`, which `make test-firecracker` prepares), and with a real
//! Firecracker where there is one (`real`).

// The whole crate is a test; clippy knows it only where it is told.
#![cfg(test)]

mod emulated;
mod job;
mod qemu;
mod real;
mod scripted;
