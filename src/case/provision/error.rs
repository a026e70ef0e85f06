//! Why an environment was not made.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::plan::StepPhase;
use crate::case::cell::{ExecError, ExecRequest, ExecResult};
use cofferdam_core::job::{StreamRecord, TextEncoding};

/// The most characters of a failed command's output that an error has.
pub const TAIL_CHARS_MAX: usize = 2000;
/// The exit code of a program that is not found.
const NOT_FOUND: u8 = 127;

/// Whose command an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProvisionSubject {
    /// One that makes the environment or installs into it.
    Provisioning,
    /// One of the Case's `commands`.
    Command,
}

/// An error of provisioning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProvisionError {
    /// A command failed.
    #[error("{subject} failed: {argv}{reason}")]
    Failed {
        /// Whose it is.
        subject: ProvisionSubject,
        /// Its words, joined with spaces.
        argv: String,
        /// What its exit code does not say; empty, or begins with a colon.
        reason: String,
        /// The end of its output.
        tail: String,
        /// The limit that ended it, if one did.
        limit: Option<&'static str>,
    },
    /// The time of the whole step is over.
    #[error("{subject} failed: {argv}: the step is out of time ({} s)", timeout.as_secs_f64())]
    TimedOut {
        /// Whose command did not end, or was not started any more.
        subject: ProvisionSubject,
        /// Its words, joined with spaces.
        argv: String,
        /// The time of the step.
        timeout: Duration,
        /// The end of its output.
        tail: String,
    },
    /// A variable names certificates that cannot be read.
    #[error("environment provisioning failed: {variable}: {reason}")]
    Certificates {
        /// The variable.
        variable: String,
        /// Why not.
        reason: String,
    },
    /// What provisioning may reach is wrong.
    #[error("environment provisioning failed: network: {reason}")]
    Network {
        /// What is wrong with it.
        reason: String,
    },
    /// The key of a shared environment cannot be made.
    #[error("environment provisioning failed: key: {reason}")]
    Key {
        /// Why not.
        reason: String,
    },
    /// The Cell was cancelled.
    #[error("environment provisioning was cancelled")]
    Cancelled,
    /// A command did not run.
    #[error("environment provisioning failed: {0}")]
    Cell(#[from] ExecError),
}

impl ProvisionError {
    /// The code of the trial's error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TimedOut { .. } => "provision.timed_out",
            _ => "provision.failed",
        }
    }

    /// The end of the output of the command that failed, at most [`TAIL_CHARS_MAX`] characters.
    pub fn tail(&self) -> &str {
        match self {
            Self::Failed { tail, .. } | Self::TimedOut { tail, .. } => tail,
            _ => "",
        }
    }
}

impl ProvisionSubject {
    /// Whose command a step of that phase is.
    pub fn of(phase: StepPhase) -> Self {
        match phase {
            StepPhase::MakeVenv | StepPhase::Install => Self::Provisioning,
            StepPhase::Command => Self::Command,
        }
    }
}

impl fmt::Display for ProvisionSubject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Provisioning => "environment provisioning",
            Self::Command => "environment command",
        })
    }
}

/// The last [`TAIL_CHARS_MAX`] characters of what a command wrote to stdout and then to stderr. What is not UTF-8 is
/// replaced.
pub fn output_tail(result: &ExecResult) -> String {
    let both = format!("{}{}", written(&result.stdout), written(&result.stderr));
    let from = both.char_indices().rev().nth(TAIL_CHARS_MAX - 1).map_or(0, |(at, _)| at);
    both.get(from..).unwrap_or_default().to_owned()
}

/// Judges the `result` of a step that had `timeout` for itself and those before it.
pub(super) fn judge(
    phase: StepPhase,
    result: &ExecResult,
    timeout: Duration,
) -> Result<(), ProvisionError> {
    let subject = ProvisionSubject::of(phase);
    let (argv, tail) = (result.argv.join(" "), || output_tail(result));
    match (result.outcome, result.exit_code) {
        ("exited", Some(0)) => Ok(()),
        ("cancelled", _) => Err(ProvisionError::Cancelled),
        ("timed_out", _) => Err(ProvisionError::TimedOut { subject, argv, timeout, tail: tail() }),
        _ => {
            let (reason, limit) = (reason(subject, result), result.limit);
            Err(ProvisionError::Failed { subject, argv, reason, tail: tail(), limit })
        }
    }
}

/// The error of a step that is not started, since the time is over.
pub(super) fn not_started(
    phase: StepPhase,
    request: &ExecRequest,
    timeout: Duration,
) -> ProvisionError {
    let (subject, argv) = (ProvisionSubject::of(phase), request.argv.join(" "));
    ProvisionError::TimedOut { subject, argv, timeout, tail: String::new() }
}

/// What the output does not say: a program that is missing, a limit, a signal.
fn reason(subject: ProvisionSubject, result: &ExecResult) -> String {
    let is_missing = result.exit_code == Some(NOT_FOUND);
    match (result.argv.first(), result.limit, result.signal) {
        (Some(program), ..) if is_missing && subject == ProvisionSubject::Provisioning => {
            format!(": the executor has no '{program}'")
        }
        (_, Some(limit), _) => format!(": the limit '{limit}'"),
        (_, None, Some(signal)) => format!(": signal {signal}"),
        _ => String::new(),
    }
}

fn written(stream: &StreamRecord) -> String {
    match stream.encoding {
        TextEncoding::Utf8 => stream.text.clone(),
        TextEncoding::Base64 => {
            let bytes = BASE64_STANDARD.decode(&stream.text).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::cell::CellExecutorKind;
    use cofferdam_core::job::Sha256;
    use cofferdam_core::values::digest::Digest;

    fn stream(bytes: &[u8]) -> StreamRecord {
        let sha256 = Sha256::from_digest(Digest::default());
        StreamRecord::of(bytes.to_vec(), bytes.len() as u64, sha256)
    }

    fn result(argv: &[&str], outcome: &'static str, exit_code: Option<u8>) -> ExecResult {
        ExecResult {
            argv: argv.iter().map(ToString::to_string).collect(),
            shell: false,
            cwd: ".".to_owned(),
            outcome,
            exit_code,
            signal: (outcome == "signaled").then_some(9),
            limit: (outcome == "memory_limit").then_some("memory"),
            stdout: stream(b"out\n"),
            stderr: stream(b"err\n"),
            wall_ms: None,
            cpu_ms: None,
            memory_peak_bytes: None,
            executor: CellExecutorKind::Local,
            not_enforced: Vec::new(),
        }
    }

    #[test]
    fn the_error_of_a_command_names_it_and_says_what_its_output_does_not() {
        use StepPhase::{Command, Install, MakeVenv};
        let timeout = Duration::from_secs(2);
        let provisioning = "environment provisioning failed";
        for (phase, argv, outcome, exit_code, code, message) in [
            (
                Command,
                &["exit 3"][..],
                "exited",
                Some(3),
                "provision.failed",
                "environment command failed: exit 3".to_owned(),
            ),
            (
                Install,
                &["uv", "pip"],
                "exited",
                Some(1),
                "provision.failed",
                format!("{provisioning}: uv pip"),
            ),
            (
                MakeVenv,
                &["uv", "venv"],
                "exited",
                Some(127),
                "provision.failed",
                format!("{provisioning}: uv venv: the executor has no 'uv'"),
            ),
            (
                Command,
                &["uv"],
                "exited",
                Some(127),
                "provision.failed",
                "environment command failed: uv".to_owned(),
            ),
            (
                Install,
                &["pip"],
                "memory_limit",
                None,
                "provision.failed",
                format!("{provisioning}: pip: the limit 'memory'"),
            ),
            (
                Install,
                &["pip"],
                "signaled",
                None,
                "provision.failed",
                format!("{provisioning}: pip: signal 9"),
            ),
            (
                Command,
                &["sleep 9"],
                "timed_out",
                None,
                "provision.timed_out",
                "environment command failed: sleep 9: the step is out of time (2 s)".to_owned(),
            ),
        ] {
            let error = judge(phase, &result(argv, outcome, exit_code), timeout).unwrap_err();
            assert_eq!((error.code(), error.to_string()), (code, message));
            assert_eq!(error.tail(), "out\nerr\n");
        }
        assert_eq!(judge(Command, &result(&["true"], "exited", Some(0)), timeout), Ok(()));
        let cancelled = judge(Command, &result(&["true"], "cancelled", None), timeout);
        assert_eq!(cancelled, Err(ProvisionError::Cancelled));
    }

    #[test]
    fn a_tail_has_characters_not_bytes_of_both_streams() {
        let mut long = result(&["a"], "exited", Some(1));
        long.stdout = stream("ä".repeat(3000).as_bytes());
        long.stderr = stream(b"\xff!");
        let tail = output_tail(&long);
        assert_eq!(tail.chars().count(), TAIL_CHARS_MAX);
        assert!(tail.starts_with('ä') && tail.ends_with("ä\u{fffd}!"));
        long.stdout = stream(b"");
        assert_eq!(output_tail(&long), "\u{fffd}!");
    }
}
