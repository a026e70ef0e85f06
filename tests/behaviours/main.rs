//! The 42 behaviours of evaluations, by number, by HTTP alone: `b7_…` is behaviour 7.

// Tells clippy that the whole crate is a test.
#![cfg(test)]

mod agents;
mod archives;
mod batches;
mod requests;
mod scene;
mod service;
mod tasks;
mod verdicts;
