//! The service as its clients see it: the real binary, real sockets, real sandboxes.
//!
//! `COFFERDAM_BIN` names another binary to test.

// Tells clippy that the whole crate is test code.
#![cfg(test)]

mod http;
mod operation;
mod resources;
mod runs;
