//! `cofferdam job validate`: whether a request is one.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::super::failure::USAGE;
use super::fault::Fault;
use super::input::read_request;
use super::output::print;
use super::place::config;

const EXAMPLES: &str = "\
Examples:
  cofferdam job validate request.json
  cofferdam job validate - <request.json

Prints {\"valid\":true}, or the error as a service would answer it: its details.path says where.
What a policy would deny is valid; the limits are held to the JOBS_MAX_* variables.
Exit codes: 0 valid; 2 not";

/// Says whether a request is one, without running anything.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Validate {
    /// The request; `-` for stdin
    #[arg(value_name = "FILE")]
    request: PathBuf,
}

impl Validate {
    /// Prints what is to be said of it.
    pub fn run(&self) -> Result<u8, Fault> {
        let jobs = config(None)?.jobs;
        let checked = read_request(&self.request, jobs.input_bytes_max)
            .and_then(|request| Ok(request.check_maxima(&jobs.maxima)?));
        match checked {
            Ok(()) => print(&json!({ "valid": true }))?,
            Err(Fault::Job(error)) => {
                print(&error)?;
                return Ok(USAGE);
            }
            Err(fault) => return Err(fault),
        }
        Ok(0)
    }
}
