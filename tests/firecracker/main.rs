//! The backend `firecracker` through its public interface: over a scripted API socket (`scripted`),
//! with a real guest under QEMU (`emulated`, prepared by `make test-firecracker`), and with a real
//! Firecracker if available (`real`).

// The whole crate is a test; clippy must be told so.
#![cfg(test)]

mod emulated;
mod job;
mod qemu;
mod real;
mod scripted;
