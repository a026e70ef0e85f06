//! Why a command on jobs did not do its work.

use std::io::{self, Write};

use super::super::failure::{Failure, USAGE};
use super::output::for_terminal;
use crate::config::Problems;
use cofferdam_core::job::{ErrorCode, JobError};

/// What there is to tell of a job, or of the way to it, that is no result.
const TOLD: u8 = 1;

/// Why a command on jobs did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A store or a server says so, in its own words.
    #[error("{0}")]
    Job(Box<JobError>),
    /// The server could not be asked, or has not answered as one of ours; a line that says what
    /// to do. Asking again may help.
    #[error("{0}")]
    Server(String),
    /// As with every other command.
    #[error(transparent)]
    Other(#[from] Failure),
}

impl From<JobError> for Fault {
    fn from(error: JobError) -> Self {
        Self::Job(Box::new(error))
    }
}

impl From<Problems> for Fault {
    fn from(problems: Problems) -> Self {
        Self::Other(problems.into())
    }
}

impl Fault {
    /// A failure of ours at `step`.
    pub fn cannot(step: &str, error: &io::Error) -> Self {
        JobError::new(ErrorCode::IoFailed, format!("{step}: {error}")).into()
    }

    /// Says it on stderr where that is not left to the caller; gives the exit code.
    pub fn conclude(self) -> Result<u8, Failure> {
        match self {
            Self::Job(error) => {
                say(&as_line(&error));
                Ok(code_of(error.code))
            }
            Self::Server(words) => {
                say(&format!("cofferdam: {words}"));
                Ok(TOLD)
            }
            Self::Other(failure) => Err(failure),
        }
    }
}

/// The exit code that tells of an error without a result.
fn code_of(code: ErrorCode) -> u8 {
    match code {
        ErrorCode::InvalidRequest | ErrorCode::PathEscape | ErrorCode::TooLarge => USAGE,
        _ => TOLD,
    }
}

/// The error as it is on the wire.
fn as_line(error: &JobError) -> String {
    // Made of texts and JSON: there is nothing in it that cannot be written.
    serde_json::to_string(error).unwrap_or_else(|_| error.to_string())
}

/// One line on stderr. Nobody is left to tell when that fails.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", for_terminal(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_request_is_usage_and_all_else_is_not() {
        for (code, exit_code) in [
            (ErrorCode::InvalidRequest, 2),
            (ErrorCode::PathEscape, 2),
            (ErrorCode::TooLarge, 2),
            (ErrorCode::JobNotFound, 1),
            (ErrorCode::JobConflict, 1),
            (ErrorCode::QueueFull, 1),
            (ErrorCode::AuthRequired, 1),
            (ErrorCode::IoFailed, 1),
        ] {
            let fault = Fault::from(JobError::new(code, "words"));
            assert_eq!(fault.conclude().unwrap(), exit_code, "{}", code.word());
            assert_eq!(exit_code == 2, code.word().starts_with("validation."));
        }
    }
}
