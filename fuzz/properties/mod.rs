//! What each fuzz target holds, as `check(input)`, which panics where it does not.
//!
//! Part of the library under `cfg(fuzzing)`, for the targets, and under `cfg(test)`, where
//! `replay` runs every kept input. Those that need a layer's private parts belong to that layer.

pub mod request_body;
pub mod timeout;

#[cfg(test)]
mod replay;

pub use crate::lang::makefile_property as makefile_resolution;
pub use crate::sandbox::{
    handshake_property as handshake, seccomp_profile_property as seccomp_profile,
};
