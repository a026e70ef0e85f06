//! The harness of an oracle that is a list of commands.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::call::{Harness, HarnessCall};
use super::end::{HarnessEnd, HarnessError, millis_since};
use crate::case::cell::{CellExecutor, ExecRequest};
use cofferdam_core::Outcome;

/// Runs shell commands, until one does not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OracleCommands {
    /// The commands.
    pub commands: Vec<String>,
}

impl Harness for OracleCommands {
    fn work(
        &self,
        cell: &dyn CellExecutor,
        call: &HarnessCall<'_>,
    ) -> Result<HarnessEnd, HarnessError> {
        let started = Instant::now();
        let mut end = HarnessEnd::of(Outcome::Exited { code: 0 }, 0, String::new());
        for command in &self.commands {
            let request =
                ExecRequest { shell: true, timeout: Duration::MAX, ..ExecRequest::new([command]) };
            let result = call.run(cell, request, &BTreeMap::new())?;
            let mut ended = HarnessEnd::of_command(&result, millis_since(started));
            end.add_output(&ended.output);
            ended.output = end.output;
            end = ended;
            if end.agent.exit_code != Some(0) {
                break;
            }
        }
        Ok(end)
    }
}
