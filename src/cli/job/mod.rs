//! `cofferdam job`: runs agents' jobs here or on a server, and queries the records of a store or a
//! server.

mod artifacts;
mod events;
mod failure;
mod follow;
mod output;
mod query;
mod records;
mod remote;
mod run;
mod run_remote;
pub mod schema;
mod target;
mod validate;

use clap::{Args, Subcommand};

use crate::cli::failure::Failure;
use failure::JobFailure;

const EXAMPLES: &str = "\
Examples:
  cofferdam job run request.json
  cofferdam job list --status failed
  cofferdam job result job_1
  cofferdam job run request.json --server http://127.0.0.1:4040 --token-file token

An error of a store or a server is one line of JSON on stderr.
`cofferdam job COMMAND --help` describes each command, `cofferdam schema request` the request.";

/// Runs agents' jobs and queries their records.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
#[command(subcommand_required = true, arg_required_else_help = false)]
pub struct JobCommand {
    #[command(subcommand)]
    command: JobSubcommand,
}

#[derive(Debug, Subcommand)]
enum JobSubcommand {
    /// Run a job and print its result
    Run(Box<run::JobRunCommand>),
    /// Print the status of a job
    Status(query::StatusCommand),
    /// Print the result of a job that has ended
    Result(query::ResultCommand),
    /// List the artifacts of a job, or fetch one
    Artifacts(artifacts::ArtifactsCommand),
    /// Request the cancellation of a job
    Cancel(query::CancelCommand),
    /// List jobs, newest first
    List(query::ListCommand),
    /// Check whether a request is valid
    Validate(validate::ValidateCommand),
}

impl JobCommand {
    /// Runs the command; returns the exit code of the contract.
    pub fn run(self) -> Result<u8, Failure> {
        let done = match self.command {
            JobSubcommand::Run(run) => run.run(),
            JobSubcommand::Status(status) => status.run(),
            JobSubcommand::Result(result) => result.run(),
            JobSubcommand::Artifacts(artifacts) => artifacts.run(),
            JobSubcommand::Cancel(cancel) => cancel.run(),
            JobSubcommand::List(list) => list.run(),
            JobSubcommand::Validate(validate) => validate.run(),
        };
        done.or_else(JobFailure::conclude)
    }
}
