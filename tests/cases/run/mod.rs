//! Runs on disk by the built binary.

mod report;
