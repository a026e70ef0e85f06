//! The tests of JUnit reports.

mod document;
mod encoding;
#[cfg(test)]
mod samples;
mod tally;
#[cfg(test)]
mod tests;
mod unusable;

pub use tally::JunitTally;
pub(super) use tally::REPORT_BYTES_MAX;
pub use unusable::UnusableReport;
