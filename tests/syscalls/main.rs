//! The number of system calls per run: unlike times, it does not depend on the load of the machine.
//!
//! `strace` traces the real binary while it creates real sandboxes. Each test prints its row.
//! `cargo test --test syscalls -- --nocapture --test-threads 1` shows the table, and `ceilings.rs`
//! has the limits. `COFFERDAM_BIN` names another binary to measure.

// Tells clippy that the whole crate is test code.
#![cfg(test)]

mod ceilings;
mod counts;
mod exec;
mod runs;
mod strace;
mod trace;
