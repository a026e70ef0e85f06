//! How much one tenant can slow down its neighbours and the service, with every bomb that a sandbox
//! can hold. The tests use the real binary and real sandboxes.
//!
//! Each test prints a row of measurements. `cargo test --test fairness -- --nocapture
//! --test-threads 1` shows the table. `COFFERDAM_BIN` names another binary to test.

// Tells clippy that the whole crate is test code.
#![cfg(test)]

mod bomb;
mod bombs;
mod host_command;
mod latency;
