//! What a box guarantees, each shown on this host's kernel.

// The whole crate is a test; clippy knows it only where it is told.
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
