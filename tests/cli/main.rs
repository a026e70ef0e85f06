//! Tests of the built binary with real sandboxes.

// Tells clippy that the whole crate is a test.
#![cfg(test)]

mod doctor;
mod engine;
mod exec;
mod job;
mod langs;
mod run;
mod running_server;
mod schema;
mod serve;
mod signals;
mod support;
mod unprivileged;
mod usage;
