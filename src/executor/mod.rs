//! Backends: a job, its files and its program become a report.

mod sandboxed;

pub use sandboxed::{Job, Sandboxed};
