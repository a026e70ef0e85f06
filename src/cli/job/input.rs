//! A request for a job, from a file or stdin.

use std::path::Path;

use super::super::failure::{Failure, error_words};
use super::super::input_file::read_input;
use super::fault::Fault;
use cofferdam_core::job::{ErrorCode, JobError, JobRequestError, RunJobRequest, parse_request};

/// The request in `path`, of which at most `bytes_max` are read; `-` is stdin.
pub fn read_request(path: &Path, bytes_max: u64) -> Result<RunJobRequest, Fault> {
    let bytes = read_bytes(path, bytes_max)?;
    parse_request(&bytes).map_err(|fault: JobRequestError| fault.into_error().into())
}

fn read_bytes(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Fault> {
    let bytes = read_input(path, bytes_max).map_err(|error| {
        Failure::option("FILE", format!("{}: {}", path.display(), error_words(&error)))
    })?;
    if u64::try_from(bytes.len()).is_ok_and(|count| count > bytes_max) {
        let words = format!("more than JOBS_INPUT_MAX, which is {bytes_max} bytes");
        return Err(JobError::new(ErrorCode::TooLarge, words).with("max", bytes_max).into());
    }
    Ok(bytes)
}
