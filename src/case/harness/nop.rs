//! Harnesses without an agent: the one that does nothing, and names that only the known agents' list has.

use super::call::{Harness, HarnessCall};
use super::end::{HarnessEnd, HarnessError};
use crate::case::cell::CellExecutor;
use cofferdam_core::Outcome;

/// Does nothing: a Case that it passes tests nothing.
#[derive(Debug, Clone, Copy)]
pub struct NopHarness;

/// An agent that a matrix may name although the Case does not define it: there is no command line to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndefinedAgent {
    /// Its name.
    pub name: String,
}

impl Harness for NopHarness {
    fn work(&self, _: &dyn CellExecutor, _: &HarnessCall<'_>) -> Result<HarnessEnd, HarnessError> {
        Ok(HarnessEnd::of(Outcome::Exited { code: 0 }, 0, String::new()))
    }
}

impl Harness for UndefinedAgent {
    fn work(&self, _: &dyn CellExecutor, _: &HarnessCall<'_>) -> Result<HarnessEnd, HarnessError> {
        Err(HarnessError::failed(format!(
            "the Case does not define the harness '{}': it has no command line",
            self.name
        )))
    }
}
