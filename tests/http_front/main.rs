//! The HTTP server against hostile clients, over real sockets.

// The whole crate is a test; clippy must be told so.
#![cfg(test)]

mod deadlines;
mod exhaustion;
mod flood;
mod footprint;
mod framing;
mod hosts;
mod jobs;
mod limits;
mod metrics;
mod origins;
mod process;
mod routes;
mod runs;
mod shutdown;
mod streaming;
mod support;
mod tokens;
