//! The backend `firecracker` and the first program of its guests.

pub mod guest_init;
pub mod options;
