//! `cofferdam job`: agents' jobs, run here, or asked for in a store or of a server.

mod artifacts;
mod client;
mod events;
mod failure;
mod follow;
mod output;
mod query;
mod records;
mod remote;
mod run;
mod run_remote;
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

An error that a store or a server tells is one line of JSON on stderr.
`cofferdam job COMMAND --help` has more of each, `cofferdam schema request` what a request is.";

/// Runs agents' jobs, and tells of those that were run.
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
    /// Say where a job is
    Status(query::StatusCommand),
    /// Print the result of a job that is over
    Result(query::ResultCommand),
    /// List what a job has left, or fetch one of it
    Artifacts(artifacts::ArtifactsCommand),
    /// Ask for the end of a job
    Cancel(query::CancelCommand),
    /// List jobs, the newest first
    List(query::ListCommand),
    /// Say whether a request is one
    Validate(validate::ValidateCommand),
}

impl JobCommand {
    /// Does what is asked for; the exit code is the contract's.
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
