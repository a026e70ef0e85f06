//! `setup`: what is done to the files of a Cell before its agent sees them.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::stub::{FoundFile, StubFault, apply_stub};
use crate::case::cell::{CellExecutor, ExecError, ExecRequest, ExecResult, StepAccess};
use crate::case::file::CaseSetup;
use cofferdam_core::job::{StreamRecord, TextEncoding};
use cofferdam_core::values::deadline::Deadline;

/// Characters of output that an error quotes.
const TAIL_CHARS_MAX: usize = 2000;

/// Why the setup of a Cell failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupFault {
    /// A function cannot be emptied.
    #[error(transparent)]
    Stub(#[from] StubFault),
    /// A command could not be run.
    #[error("setup command failed: {command}: {error}")]
    NotRun {
        /// The command.
        command: String,
        /// Why.
        error: ExecError,
    },
    /// A command did not succeed.
    #[error("setup command failed: {command}")]
    Command {
        /// The command.
        command: String,
        /// The last characters of what it wrote.
        tail: String,
        /// How it ended, a word of `X-Run-Outcome`.
        outcome: &'static str,
    },
}

impl SetupFault {
    /// The code of a result.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Command { outcome: "timed_out", .. } => "setup.timed_out",
            _ => "setup.failed",
        }
    }

    /// The last characters of what the command wrote.
    pub fn tail(&self) -> &str {
        match self {
            Self::Command { tail, .. } => tail,
            _ => "",
        }
    }
}

/// Empties functions and runs commands in a Cell, in the order of the Case, until `deadline`. The commands see the
/// Case's directory and have the variables `env`; `find` is that of [`apply_stub`].
///
/// # Errors
/// The first function that cannot be emptied, or command that did not succeed. What came before it is done.
pub fn set_up(
    cell: &dyn CellExecutor,
    setup: &CaseSetup,
    env: &BTreeMap<String, Option<String>>,
    deadline: Deadline,
    find: &dyn Fn(&Path) -> Option<FoundFile>,
) -> Result<(), SetupFault> {
    for target in &setup.stub {
        apply_stub(cell, target, find)?;
    }
    for command in &setup.run {
        let request = ExecRequest {
            env: env.clone(),
            timeout: deadline.remaining(),
            shell: true,
            access: StepAccess { shows_case: true, egress: None },
            ..ExecRequest::new([command])
        };
        let result = match request.timeout.is_zero() {
            true => return Err(late(command)),
            false => cell.run(&request),
        };
        let result = result.map_err(|error| SetupFault::NotRun { command: command.clone(), error });
        check(command, &result?)?;
    }
    Ok(())
}

/// The fault of a command for which no time is left.
fn late(command: &str) -> SetupFault {
    SetupFault::Command { command: command.to_owned(), tail: String::new(), outcome: "timed_out" }
}

fn check(command: &str, result: &ExecResult) -> Result<(), SetupFault> {
    if (result.outcome, result.exit_code) == ("exited", Some(0)) {
        return Ok(());
    }
    let (command, tail) = (command.to_owned(), tail_of(result));
    Err(SetupFault::Command { command, tail, outcome: result.outcome })
}

/// The last [`TAIL_CHARS_MAX`] characters of stdout, followed by stderr.
fn tail_of(result: &ExecResult) -> String {
    let text = text_of(&result.stdout) + &text_of(&result.stderr);
    let skipped = text.chars().count().saturating_sub(TAIL_CHARS_MAX);
    text.chars().skip(skipped).collect()
}

fn text_of(stream: &StreamRecord) -> String {
    match stream.encoding {
        TextEncoding::Utf8 => stream.text.clone(),
        TextEncoding::Base64 => {
            let bytes = BASE64_STANDARD.decode(&stream.text).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }
}
