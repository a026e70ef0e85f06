//! What one tenant can do to its neighbours and to the service: the real binary, real boxes, and
//! every bomb that a box can hold.
//!
//! Each test prints a row of figures; `cargo test --test fairness -- --nocapture --test-threads 1`
//! shows the table. `COFFERDAM_BIN` names another binary to hold to the same guarantees.

// The whole crate is a test; clippy knows it only where it is told.
#![cfg(test)]

mod bomb;
mod bombs;
mod host_command;
mod latency;
