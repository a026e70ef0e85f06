//! What the tests of the whole service share: the real binary as a process, a raw HTTP client,
//! workspaces that run the shell, and views of the server from the host.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "used by tests only"
)]

pub mod alone;
pub mod client;
pub mod evaluations;
pub mod exchange;
pub mod exposition;
pub mod host;
pub mod prestart;
pub mod recorded;
pub mod service;
pub mod shipped;
pub mod vector;
pub mod workspace;
