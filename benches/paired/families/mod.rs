//! What is measured, a file for each family of rows.

mod concurrency;
mod exec;
mod growth;
mod health;
mod idle;
mod output;
mod runs;
mod server_size;
mod standby;
mod storm;

use crate::report::Report;

/// A family by its name, and what takes its figures.
pub type Family = (&'static str, fn(&mut Report));

/// In the order in which they run; `FAMILIES` picks some.
pub const FAMILIES: [Family; 10] = [
    ("runs", runs::measure),
    ("exec", exec::measure),
    ("idle", idle::measure),
    ("server_size", server_size::measure),
    ("storm", storm::measure),
    ("output", output::measure),
    ("health", health::measure),
    ("standby", standby::measure),
    ("growth", growth::measure),
    ("concurrency", concurrency::measure),
];
