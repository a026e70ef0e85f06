//! Errors of job commands.

use std::io;

use crate::cli::failure::{Failure, USAGE};
use crate::cli::remote::fault::ServerFault;
use crate::cli::stdio::say;
use crate::config::Problems;
use cofferdam_core::job::{ErrorCode, JobError};

/// The exit code of an error that is not a usage error.
const ERROR: u8 = 1;

/// Why a job command failed.
#[derive(Debug, thiserror::Error)]
pub enum JobFailure {
    /// The error of a store or a server.
    #[error("{0}")]
    Job(Box<JobError>),
    /// The server cannot be reached, or its response is not that of a job service. A retry may
    /// help.
    #[error("{0}")]
    Server(String),
    /// An error that other commands have too.
    #[error(transparent)]
    Other(#[from] Failure),
}

impl From<JobError> for JobFailure {
    fn from(error: JobError) -> Self {
        Self::Job(Box::new(error))
    }
}

impl From<Problems> for JobFailure {
    fn from(problems: Problems) -> Self {
        Self::Other(problems.into())
    }
}

impl From<ServerFault> for JobFailure {
    fn from(fault: ServerFault) -> Self {
        let (server, words) = match fault {
            ServerFault::Unreachable(words) => return Self::Server(words),
            ServerFault::Unexpected { words, server } => (server, words),
            ServerFault::Refused { status, body, server } => {
                match serde_json::from_slice::<JobError>(&body) {
                    Ok(error) => return error.into(),
                    Err(_) => (server, format!("answered {status}")),
                }
            }
        };
        Self::Server(format!("--server: {server}: {words}; want a cofferdam service with jobs"))
    }
}

impl JobFailure {
    /// An I/O error at `step`.
    pub fn cannot(step: &str, error: &io::Error) -> Self {
        JobError::new(ErrorCode::IoFailed, format!("{step}: {error}")).into()
    }

    /// Prints the error to stderr and returns its exit code. Returns a [`Failure`] to the caller,
    /// which prints it.
    pub fn conclude(self) -> Result<u8, Failure> {
        match self {
            Self::Job(error) => {
                say(&as_line(&error));
                Ok(code_of(error.code))
            }
            Self::Server(words) => {
                say(&format!("cofferdam: {words}"));
                Ok(ERROR)
            }
            Self::Other(failure) => Err(failure),
        }
    }
}

/// The exit code of an error without a result.
fn code_of(code: ErrorCode) -> u8 {
    match code {
        ErrorCode::InvalidRequest | ErrorCode::PathEscape | ErrorCode::TooLarge => USAGE,
        _ => ERROR,
    }
}

/// The error as JSON.
fn as_line(error: &JobError) -> String {
    // Does not fail: it contains only strings and JSON.
    serde_json::to_string(error).unwrap_or_else(|_| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_the_request_have_the_usage_exit_code() {
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
            let fault = JobFailure::from(JobError::new(code, "words"));
            assert_eq!(fault.conclude().unwrap(), exit_code, "{}", code.word());
            assert_eq!(exit_code == 2, code.word().starts_with("validation."));
        }
    }
}
