//! The built binary, from outside, with real boxes.

// The whole crate is a test; clippy knows it only where it is told.
#![cfg(test)]

mod doctor;
mod exec;
mod job;
mod langs;
mod run;
mod schema;
mod serve;
mod signals;
mod support;
mod unprivileged;
mod usage;
