//! `cofferdam task`: checks tasks of evaluations, and converts those of other formats.

mod check;
mod convert;
mod scratch;

use clap::{Args, Subcommand};

use crate::cli::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  cofferdam task check task.tar.gz
  cofferdam task check tasks/a --json
  cofferdam task convert swebench instance.json --install 'pip install -e .' --out tasks/a
  cofferdam task convert harbor hello-world --out tasks/hello";

/// Checks and converts the tasks of evaluations.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
#[command(subcommand_required = true, arg_required_else_help = false)]
pub struct TaskCommand {
    #[command(subcommand)]
    command: TaskSubcommand,
}

#[derive(Debug, Subcommand)]
enum TaskSubcommand {
    /// Report what would fail in a task, and what can change from day to day
    Check(check::TaskCheckCommand),
    /// Make a task of one of another format
    Convert(convert::TaskConvertCommand),
}

impl TaskCommand {
    /// Runs the command; returns the exit code of the contract.
    pub fn run(self) -> Result<u8, Failure> {
        match self.command {
            TaskSubcommand::Check(check) => check.run(),
            TaskSubcommand::Convert(convert) => convert.run(),
        }
    }
}
