//! The guarantees of a sandbox, each tested on the kernel of this host.

// Tells clippy that the whole crate is test code.
#![cfg(test)]

mod crash;
mod isolation;
mod leaks;
mod mounted;
mod plan;
mod runs;
mod seccomp;
mod start;
