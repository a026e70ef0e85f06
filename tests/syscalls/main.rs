//! How many system calls a run costs: unlike milliseconds, they are the same on a busy machine.
//!
//! `strace` looks on from outside while the real binary makes real boxes. Each test prints its
//! row; `cargo test --test syscalls -- --nocapture --test-threads 1` shows the table, and
//! `ceilings.rs` has the figures that nothing may exceed. `COFFERDAM_BIN` names another binary
//! to count.

// The whole crate is a test; clippy knows it only where it is told.
#![cfg(test)]

mod ceilings;
mod counts;
mod exec;
mod runs;
mod strace;
mod trace;
