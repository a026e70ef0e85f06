//! A Cell whose commands are recorded.

use std::os::fd::{BorrowedFd, OwnedFd};

use serde::Serialize;

use super::error::TrialStep;
use crate::case::cell::{
    CellDescription, CellEntry, CellExecutor, ExecError, ExecRequest, ExecResult,
};
use crate::case::run::CellLog;
use cofferdam_tree::Owner;

/// A line of `commands.jsonl`.
#[derive(Debug, Serialize)]
struct RecordedCommand<'a> {
    step: &'static str,
    argv: &'a [String],
    outcome: Option<&'static str>,
    exit_code: Option<u8>,
    wall_ms: Option<u64>,
    /// The names of the variables that it had besides those of the executor. Values may be secrets.
    env: Vec<&'a str>,
    /// Why nothing has run.
    error: Option<&'a ExecError>,
}

/// Passes everything on to a Cell, and records its commands.
#[derive(Debug)]
pub struct RecordedCell<'a> {
    cell: &'a dyn CellExecutor,
    log: Option<&'a CellLog>,
    step: TrialStep,
}

impl<'a> RecordedCell<'a> {
    /// Records the commands of `cell`, which belong to `step`, in `log`, if there is one.
    pub fn new(cell: &'a dyn CellExecutor, log: Option<&'a CellLog>, step: TrialStep) -> Self {
        Self { cell, log, step }
    }

    fn record(&self, request: &ExecRequest, ended: &Result<ExecResult, ExecError>) {
        let Some(log) = self.log else { return };
        let result = ended.as_ref().ok();
        let env = request.env.iter().filter(|(_, value)| value.is_some());
        log.append_line(&RecordedCommand {
            step: self.step.word(),
            argv: &request.argv,
            outcome: result.map(|result| result.outcome),
            exit_code: result.and_then(|result| result.exit_code),
            wall_ms: result.and_then(|result| result.wall_ms),
            env: env.map(|(name, _)| name.as_str()).collect(),
            error: ended.as_ref().err(),
        });
    }
}

impl CellExecutor for RecordedCell<'_> {
    fn start(&self) -> Result<(), ExecError> {
        self.cell.start()
    }

    fn run(&self, request: &ExecRequest) -> Result<ExecResult, ExecError> {
        let ended = self.cell.run(request);
        self.record(request, &ended);
        ended
    }

    fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError> {
        self.cell.put(path, content, mode)
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, ExecError> {
        self.cell.get(path)
    }

    fn remove(&self, path: &str) -> Result<(), ExecError> {
        self.cell.remove(path)
    }

    fn list(&self, path: &str) -> Result<Vec<CellEntry>, ExecError> {
        self.cell.list(path)
    }

    fn open_sandbox(&self) -> Result<OwnedFd, ExecError> {
        self.cell.open_sandbox()
    }

    fn replace_sandbox(
        &self,
        fill: &mut dyn FnMut(BorrowedFd<'_>, Owner) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        self.cell.replace_sandbox(fill)
    }

    fn stop(&self) {
        self.cell.stop();
    }

    fn describe(&self) -> Result<CellDescription, ExecError> {
        self.cell.describe()
    }
}
