//! The service as its clients see it: the real binary, real sockets, real sandboxes.
//!
//! `COFFERDAM_BIN` names another binary to test.

// Tells clippy that the whole crate is test code.
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
