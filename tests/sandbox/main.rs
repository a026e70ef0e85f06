//! What a box guarantees, each shown on this host's kernel.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test reports by failing"
)]

mod crash;
mod descriptors;
mod endings;
mod environment;
mod files;
mod identity;
mod leaks;
mod limits;
mod network;
mod output;
mod plan;
mod processes;
mod tenants;
mod wall;
mod workspace;

#[path = "../support/mod.rs"]
mod support;
