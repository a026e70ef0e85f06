//! Cases by public doors: the built binary. `COFFERDAM_BIN` names another binary to test.

// Tells clippy that the whole crate is a test.
#![cfg(test)]

mod conformance;
mod faults;
mod forgers;
mod grade;
mod harness;
mod provision;
mod run;
mod service;
mod source;
mod trial_cells;
mod trials;
mod validate;
