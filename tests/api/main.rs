//! The service as its clients meet it: the real binary, real sockets, real boxes.
//!
//! `COFFERDAM_BIN` names another binary to hold to the same guarantees.

// The whole crate is a test; clippy knows it only where it is told.
#![cfg(test)]

mod configuration;
mod degraded;
mod descriptors;
mod drain;
mod drain_under_load;
mod dying_groups;
mod failures;
mod inside;
mod limits;
mod logs;
mod outcomes;
mod requests;
mod routes;
mod slots;
mod soak;
mod status;
mod streaming;
mod timeouts;
mod undying;
mod unread_log;
mod workspaces;
