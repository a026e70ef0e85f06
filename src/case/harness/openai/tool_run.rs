//! The effects of tools, all of them through the executor of the Cell.

use std::collections::BTreeMap;
use std::time::Duration;

use super::text::{ANSWER_BYTES_MAX, cut, lines};
use super::tools::{ToolAsked, edited};
use crate::case::cell::{CellExecutor, ExecCode, ExecError, ExecRequest, ExecResult};
use crate::case::harness::call::HarnessCall;
use crate::case::harness::end::{HarnessError, shown};

/// Runs `$0` with bash, or with sh where there is no bash.
const SHELL: &str =
    r#"if command -v bash >/dev/null 2>&1; then exec bash -c "$0"; fi; exec sh -c "$0""#;
/// How long a search or a list may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(60);
/// The exit code of grep that has found nothing.
const NO_MATCH: u8 = 1;
const PLAIN_MODE: u32 = 0o644;
const EXECUTABLE_MODE: u32 = 0o755;

/// The tools of one agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct CellTools<'a> {
    /// The Cell.
    pub(super) cell: &'a dyn CellExecutor,
    /// The call that the agent works in.
    pub(super) call: &'a HarnessCall<'a>,
    /// Variables of programs.
    pub(super) env: &'a BTreeMap<String, String>,
}

/// Why there is no answer of a tool.
#[derive(Debug)]
pub(super) enum ToolFault {
    /// What the model is told.
    Told(String),
    /// The Cell failed.
    Cell(HarnessError),
}

impl From<String> for ToolFault {
    fn from(told: String) -> Self {
        Self::Told(told)
    }
}

/// What a model can do about is told to it.
impl From<ExecError> for ToolFault {
    fn from(error: ExecError) -> Self {
        match error.code {
            ExecCode::NotStarted | ExecCode::Stopped | ExecCode::BackendUnavailable => {
                Self::Cell(error.into())
            }
            _ => Self::Told(format!("error: {error}")),
        }
    }
}

impl CellTools<'_> {
    /// What the tool answers, within bounds.
    ///
    /// # Errors
    /// The Cell failed.
    pub(super) fn answer(self, asked: &ToolAsked) -> Result<String, HarnessError> {
        match self.result(asked) {
            Ok(text) | Err(ToolFault::Told(text)) => Ok(cut(text, ANSWER_BYTES_MAX)),
            Err(ToolFault::Cell(error)) => Err(error),
        }
    }

    fn result(self, asked: &ToolAsked) -> Result<String, ToolFault> {
        match asked {
            ToolAsked::Bash { command, seconds } => {
                let argv = ["sh", "-c", SHELL, command];
                Ok(told(&self.run(&argv, Duration::from_secs(*seconds))?))
            }
            ToolAsked::ReadFile { path, first_line, lines_max } => {
                let content = self.cell.get(path)?;
                let text = String::from_utf8_lossy(&content);
                Ok(lines(&text, *first_line, *lines_max))
            }
            ToolAsked::WriteFile { path, content } => self.write(path, content),
            ToolAsked::EditFile { path, old, new } => {
                let content = String::from_utf8(self.cell.get(path)?)
                    .map_err(|_| "error: the file is not UTF-8".to_owned())?;
                self.write(path, &edited(&content, old, new)?)
            }
            ToolAsked::Grep { pattern, path } => {
                let argv = ["grep", "-rnE", "-e", pattern, "--", path];
                let result = self.run(&argv, LOOK_TIMEOUT)?;
                match result.exit_code {
                    Some(NO_MATCH) if result.stderr.bytes == 0 => Ok("no match".to_owned()),
                    _ => Ok(looked(&result)),
                }
            }
            ToolAsked::ListDir { path } => {
                let result = self.run(&["ls", "-1Ap", "--", path], LOOK_TIMEOUT)?;
                Ok(looked(&result))
            }
        }
    }

    /// Writes a file that stays executable if it is.
    fn write(self, path: &str, content: &str) -> Result<String, ToolFault> {
        let is_executable = self.run(&["test", "-x", path], LOOK_TIMEOUT)?.exit_code == Some(0);
        let mode = if is_executable { EXECUTABLE_MODE } else { PLAIN_MODE };
        self.cell.put(path, content.as_bytes(), mode)?;
        Ok(format!("wrote {} bytes", content.len()))
    }

    fn run(self, argv: &[&str], timeout: Duration) -> Result<ExecResult, ToolFault> {
        let request = ExecRequest { timeout, ..ExecRequest::new(argv.iter().copied()) };
        match self.call.run(self.cell, request, self.env) {
            // No sandbox for it: the agent has no part in that.
            Err(error) if error.code == ExecCode::BackendFailed => {
                Err(ToolFault::Cell(error.into()))
            }
            result => Ok(result?),
        }
    }
}

/// What a command wrote, and how it ended.
fn told(result: &ExecResult) -> String {
    let mut text = shown(&result.stdout);
    let stderr = shown(&result.stderr);
    if !stderr.is_empty() {
        end_line(&mut text);
        text.push_str("[stderr]\n");
        text.push_str(&stderr);
    }
    end_line(&mut text);
    let end = match (result.exit_code, result.signal) {
        (Some(code), _) => format!("[exit code {code}]"),
        (None, Some(signal)) => format!("[{} by signal {signal}]", result.outcome),
        (None, None) => format!("[{}]", result.outcome),
    };
    text.push_str(&end);
    text
}

/// What a command found; how it ended too, if it did not succeed.
fn looked(result: &ExecResult) -> String {
    match result.exit_code {
        Some(0) => shown(&result.stdout),
        _ => told(result),
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}
