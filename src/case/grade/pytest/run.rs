//! Running the runner in a Cell.

use std::collections::BTreeMap;
use std::time::Duration;

use super::channel::ChannelSecret;
use super::report::RunnerReport;
use super::task::PytestTask;
use crate::case::cell::{CellExecutor, ExecError, ExecResult};

/// A run of tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PytestRun {
    /// The command. Its stderr has all that pytest and the tests printed, its stdout the report.
    pub result: ExecResult,
    /// What the runner reported.
    pub report: RunnerReport,
}

/// Runs the tests of `task` in the sandbox of `cell`, with the variables `env` and for at most `timeout`.
///
/// # Errors
/// Nothing has run.
pub fn run_pytest(
    cell: &dyn CellExecutor,
    task: &PytestTask,
    env: BTreeMap<String, Option<String>>,
    timeout: Duration,
) -> Result<PytestRun, ExecError> {
    let secret = ChannelSecret::random();
    let mut request = task.request(&secret);
    (request.env, request.timeout) = (env, timeout);
    let result = cell.run(&request)?;
    let report = RunnerReport::read(&result, &secret);
    Ok(PytestRun { result, report })
}
