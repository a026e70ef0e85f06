//! `RLIMIT_FSIZE` of the service. The service writes records, workspaces and plans of sandboxes; the
//! limit applies to files in memory too.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::cli::failure::Failure;
use crate::config::Config;

/// An upper bound of the files that the service writes independently of requests, bytes.
const OWN_FILES_BYTES: u64 = 8 << 20;
/// The assumed size of a request's text if `RUN_INPUT_MAX` is not set, bytes.
const UNLIMITED_INPUT_BYTES: u64 = 64 << 20;

/// Refuses to start if the hard limit is below what one file of the service may need. A larger file
/// of a workspace fails only its own run, with `EFBIG`.
pub fn check_file_size(config: &Config) -> Result<(), Failure> {
    let hard = raise_file_size().map_err(Failure::Serve)?;
    let needed = needed_bytes(config);
    if hard < needed {
        return Err(Failure::Limits(format!(
            "file size: the hard limit (ulimit -Hf, LimitFSIZE=) is {hard} bytes, and at least \
             {needed} are needed; raise it, or lower RUN_INPUT_MAX and JOBS_MAX_*_BYTES"
        )));
    }
    Ok(())
}

/// Raises the soft limit to the hard limit; returns the hard limit.
pub fn raise_file_size() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_FSIZE, hard, hard)?;
    }
    Ok(hard)
}

/// The largest single file of a request, a record or an artifact.
fn needed_bytes(config: &Config) -> u64 {
    let of_runs = config.input_bytes_max.unwrap_or(UNLIMITED_INPUT_BYTES);
    let jobs = &config.jobs;
    let maxima = &jobs.maxima;
    let of_jobs = [
        jobs.input_bytes_max,
        maxima.record_bytes,
        maxima.stdout_bytes,
        maxima.stderr_bytes,
        maxima.artifact_file_bytes,
    ];
    let of_jobs = of_jobs.into_iter().filter(|_| jobs.enabled).max().unwrap_or(0);
    OWN_FILES_BYTES.max(of_runs).max(of_jobs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    #[test]
    fn the_needed_size_is_the_largest_file_that_may_be_requested() {
        let config = |text: &'static [(&'static str, &'static str)]| {
            let variables = text.iter().map(|(name, value)| (name.into(), value.into()));
            Config::read(variables, &Overrides::default()).0
        };
        let off = config(&[("JOBS", "off"), ("RUN_INPUT_MAX", "1MiB")]);
        assert_eq!(needed_bytes(&off), OWN_FILES_BYTES);
        let large = config(&[("JOBS", "off"), ("RUN_INPUT_MAX", "20MiB")]);
        assert_eq!(needed_bytes(&large), 20 << 20);
        let jobs = config(&[("JOBS_MAX_ARTIFACT_FILE_BYTES", "3GiB")]);
        assert_eq!(needed_bytes(&jobs), 3 << 30);
    }
}
