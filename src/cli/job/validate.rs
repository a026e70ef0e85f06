//! `cofferdam job validate`: checks whether a request is valid.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::failure::JobFailure;
use super::output::print_json;
use super::target::config;
use crate::cli::failure::{Failure, USAGE, error_words};
use crate::cli::options::file_secrets::egress_with_secrets;
use crate::cli::stdio::read_input;
use crate::config::Config;
use crate::job::ValidJob;
use cofferdam_core::job::{ErrorCode, JobError, JobRequestError, ValidRequest, parse_request};

const EXAMPLES: &str = "\
Examples:
  cofferdam job validate request.json
  cofferdam job validate - <request.json

Prints {\"valid\":true}, or the error that a service would return; its details.path names the key.
The policy is not checked; the limits are checked against the JOBS_MAX_* variables.
Exit codes: 0 valid; 2 not valid";

/// Checks whether a request is valid, without running it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ValidateCommand {
    /// The request; `-` for stdin
    #[arg(value_name = "FILE")]
    request: PathBuf,
}

impl ValidateCommand {
    /// Prints the verdict.
    pub fn run(&self) -> Result<u8, JobFailure> {
        let Config { jobs, secrets, .. } = config(None)?;
        let (egress, _) = egress_with_secrets(secrets.as_ref())?;
        let checked = read_request(&self.request, jobs.input_bytes_max).and_then(|request| {
            Ok(ValidJob::new(request, &jobs.maxima, egress.secrets()).map(drop)?)
        });
        match checked {
            Ok(()) => print_json(&json!({ "valid": true }))?,
            Err(JobFailure::Job(error)) => {
                print_json(&error)?;
                return Ok(USAGE);
            }
            Err(fault) => return Err(fault),
        }
        Ok(0)
    }
}

/// Reads the request in `path`, or stdin for `-`; at most `bytes_max` bytes.
pub fn read_request(path: &Path, bytes_max: u64) -> Result<ValidRequest, JobFailure> {
    let bytes = read_bytes(path, bytes_max)?;
    parse_request(&bytes).map_err(|fault: JobRequestError| fault.into_error().into())
}

fn read_bytes(path: &Path, bytes_max: u64) -> Result<Vec<u8>, JobFailure> {
    let bytes = read_input(path, bytes_max).map_err(|error| {
        Failure::option("FILE", format!("{}: {}", path.display(), error_words(&error)))
    })?;
    if u64::try_from(bytes.len()).is_ok_and(|count| count > bytes_max) {
        let words = format!("more than JOBS_INPUT_MAX, which is {bytes_max} bytes");
        return Err(JobError::new(ErrorCode::TooLarge, words).with("max", bytes_max).into());
    }
    Ok(bytes)
}
