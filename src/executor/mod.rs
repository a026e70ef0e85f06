//! Backends: a job, its files and its program become a report.

mod blueprint;
mod boxes;
mod filling;
mod host_ids;
mod sandboxed;
mod shelves;
#[cfg(test)]
mod shelves_tests;
mod standby;

pub use sandboxed::{Job, Sandboxed};
