//! What tests of the whole service share: the real binary started, a raw client, workspaces in
//! the shell, and looks at what the host shows of it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "used by tests only"
)]

pub mod client;
pub mod exposition;
pub mod host;
pub mod service;
pub mod shipped;
pub mod vector;
pub mod workspace;
