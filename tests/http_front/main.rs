//! The HTTP front against clients that mean harm, over real sockets.

// The whole crate is a test; clippy knows it only where it is told.
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
