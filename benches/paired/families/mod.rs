//! The measurements, one file per family of rows.

mod concurrency;
mod engine;
mod evaluations;
mod exec;
mod growth;
mod health;
mod idle;
mod memory;
mod output;
mod runs;
mod server_size;
mod standby;
mod storm;

use crate::report::Report;

/// The name of a family, and the function that measures it.
pub type Family = (&'static str, fn(&mut Report));

/// The families in order of execution; `FAMILIES` selects some.
pub const FAMILIES: [Family; 15] = [
    ("runs", runs::measure),
    ("exec", exec::measure),
    ("peers", exec::peers::measure),
    ("idle", idle::measure),
    ("server_size", server_size::measure),
    ("storm", storm::measure),
    ("output", output::measure),
    ("health", health::measure),
    ("standby", standby::measure),
    ("growth", growth::measure),
    ("concurrency", concurrency::measure),
    ("engine", engine::measure),
    ("egress", engine::egress::measure),
    ("evaluations", evaluations::measure),
    ("cases", evaluations::cases::measure),
];
