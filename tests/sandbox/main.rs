//! The guarantees of a sandbox, each tested on the kernel of this host.

// Tells clippy that the whole crate is test code.
#![cfg(test)]

mod crash;
mod descriptors;
mod endings;
mod environment;
mod files;
mod identity;
mod inherited;
mod landlock;
mod leaks;
mod limits;
mod masked;
mod network;
mod output;
mod plan;
mod processes;
mod programs;
mod seccomp;
mod tasks;
mod tenants;
mod wall;
mod workspace;
