//! The command of a grader.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::case::cell::{CellExecutor, ExecRequest, ExecResult};
use crate::case::grade::grader::{GradeError, GradeInputs};
use cofferdam_core::job::{StreamRecord, TextEncoding};

/// The return code of a command that is out of time, as `timeout` has it.
const OUT_OF_TIME: u32 = 124;
/// What the number of a signal is added to.
const SIGNALED: u32 = 128;
/// The signal of a command that was killed by a limit that names none.
const KILLED: u32 = 9;
/// The longest time of a grader.
const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Characters of the end of the output in a score.
const TAIL_CHARS_MAX: usize = 2000;

/// How the command of a grader ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRun {
    /// Its exit code, 124 if it was out of time, or 128 and the signal.
    pub returncode: u32,
    /// Whether it was out of time.
    pub timed_out: bool,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
    /// Whether more was written than is kept.
    pub truncated: bool,
}

/// Runs `cmd` by a shell in the sandbox, with the variables of provisioning and without network.
///
/// # Errors
/// Nothing ran, or it was cancelled.
pub fn run_shell(
    cell: &dyn CellExecutor,
    cmd: &str,
    inputs: &GradeInputs,
    timeout_s: f64,
) -> Result<StepRun, GradeError> {
    let mut request = ExecRequest::new([cmd]);
    request.shell = true;
    request.env.clone_from(&inputs.env);
    let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or(TIMEOUT_MAX);
    request.timeout = timeout.min(TIMEOUT_MAX);
    StepRun::of(&cell.run(&request)?)
}

impl StepRun {
    /// How the command with that result ended.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn of(result: &ExecResult) -> Result<Self, GradeError> {
        let signal = result.signal.and_then(|signal| u32::try_from(signal).ok());
        let timed_out = result.outcome == "timed_out";
        let returncode = match (timed_out, result.exit_code) {
            _ if result.outcome == "cancelled" => return Err(GradeError::Cancelled),
            (true, _) => OUT_OF_TIME,
            (false, Some(code)) => code.into(),
            (false, None) => SIGNALED + signal.unwrap_or(KILLED),
        };
        Ok(Self {
            returncode,
            timed_out,
            stdout: text(&result.stdout).into_owned(),
            stderr: text(&result.stderr).into_owned(),
            truncated: result.stdout.truncated || result.stderr.truncated,
        })
    }

    /// The end of what it wrote, stdout first.
    pub fn tail(&self) -> String {
        end_of(&format!("{}{}", self.stdout, self.stderr))
    }

    /// The end of what it wrote to stderr.
    pub fn stderr_tail(&self) -> String {
        end_of(&self.stderr)
    }
}

fn end_of(output: &str) -> String {
    let start = output.char_indices().rev().nth(TAIL_CHARS_MAX - 1).map_or(0, |(at, _)| at);
    output.get(start..).unwrap_or_default().to_owned()
}

/// The kept part of a stream. What is no UTF-8 in it is replaced.
fn text(stream: &StreamRecord) -> Cow<'_, str> {
    match stream.encoding {
        TextEncoding::Utf8 => Cow::Borrowed(&stream.text),
        TextEncoding::Base64 => {
            let bytes = STANDARD.decode(&stream.text).unwrap_or_default();
            Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_has_the_last_characters_of_both_streams() {
        let run = |stdout: &str, stderr: &str| StepRun {
            returncode: 0,
            timed_out: false,
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            truncated: false,
        };
        assert_eq!(run("", "").tail(), "");
        assert_eq!(run("a", "b").tail(), "ab");
        let tail = run(&"é".repeat(3000), "end").tail();
        assert_eq!((tail.chars().count(), tail.ends_with("éend")), (2000, true));
    }
}
