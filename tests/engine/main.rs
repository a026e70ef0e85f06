//! The code executor engine over HTTP and on the command line, with a real service.
//!
//! `COFFERDAM_BIN` names another binary to test.

// The whole crate is a test; clippy must be told so.
#![cfg(test)]

mod artifacts;
mod attach;
mod exchange;
mod execute;
mod files;
mod forks;
mod helpers;
mod lifetimes;
mod limits;
mod programs;
mod scene;
mod sessions;
mod workspaces;
