//! The HTTP server against hostile clients, over real sockets.

// The whole crate is a test; clippy must be told so.
#![cfg(test)]

mod access;
mod cases;
mod evaluations;
mod jobs;
mod messages;
mod metrics;
mod overload;
mod shutdown;
mod support;
