//! `cofferdam job`: agents' jobs, run here, or asked for in a store or of a server.

mod artifacts;
mod client;
mod events;
mod fault;
mod follow;
mod input;
mod look;
mod output;
mod place;
mod progress;
mod records;
mod remote;
mod run;
mod run_there;
mod stored;
mod validate;

use clap::{Args, Subcommand};

use super::failure::Failure;

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
pub struct Job {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a job and print its result
    Run(Box<run::Run>),
    /// Say where a job is
    Status(look::Status),
    /// Print the result of a job that is over
    Result(look::ShowResult),
    /// List what a job has left, or fetch one of it
    Artifacts(artifacts::Artifacts),
    /// Ask for the end of a job
    Cancel(look::Cancel),
    /// List jobs, the newest first
    List(look::List),
    /// Say whether a request is one
    Validate(validate::Validate),
}

impl Job {
    /// Does what is asked for; the exit code is the contract's.
    pub fn run(self) -> Result<u8, Failure> {
        let done = match self.command {
            Command::Run(run) => run.run(),
            Command::Status(status) => status.run(),
            Command::Result(result) => result.run(),
            Command::Artifacts(artifacts) => artifacts.run(),
            Command::Cancel(cancel) => cancel.run(),
            Command::List(list) => list.run(),
            Command::Validate(validate) => validate.run(),
        };
        done.or_else(fault::Fault::conclude)
    }
}
