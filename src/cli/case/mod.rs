//! `cofferdam case`: checks Cases, runs them, runs commands in their Cells, and reports on their runs.

mod exec;
mod progress;
mod prove;
mod report;
mod resume;
mod run;
mod runs;
#[cfg(test)]
mod tests;
mod trials;
mod validate;

use clap::{Args, Subcommand};

use crate::cli::failure::Failure;
use exec::CaseExecCommand;
use report::CaseReportCommand;
use resume::CaseResumeCommand;
use run::CaseRunCommand;
use trials::CaseTrials;
use validate::CaseValidateCommand;

const EXAMPLES: &str = "\
Examples:
  cofferdam case validate cases/fix-add
  cofferdam case validate cases/fix-add/case.yaml --prove
  cofferdam case exec cases/fix-add --timeout 10s -- ls -l
  cofferdam case run cases/fix-add --jobs 4
  cofferdam case resume cases/fix-add
  cofferdam case report cases/fix-add";

/// Checks Cases, runs them, runs commands in their Cells, and reports on their runs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
#[command(subcommand_required = true, arg_required_else_help = false)]
pub struct CaseCommand {
    #[command(subcommand)]
    command: CaseSubcommand,
}

#[derive(Debug, Subcommand)]
enum CaseSubcommand {
    /// Report every error of a case file as JSON
    Validate(CaseValidateCommand),
    /// Run one command over the files of a new Cell
    Exec(Box<CaseExecCommand>),
    /// Run every Cell of a Case
    Run(Box<CaseRunCommand>),
    /// Go on with a run
    Resume(CaseResumeCommand),
    /// Write the reports of a run again
    Report(CaseReportCommand),
}

impl CaseCommand {
    /// Runs the command; returns the exit code of the contract.
    pub fn run(self) -> Result<u8, Failure> {
        match self.command {
            CaseSubcommand::Validate(validate) => validate.run(&CaseTrials),
            CaseSubcommand::Exec(exec) => exec.run(),
            CaseSubcommand::Run(run) => run.run(&CaseTrials),
            CaseSubcommand::Resume(resume) => resume.run(&CaseTrials),
            CaseSubcommand::Report(report) => report.run(),
        }
    }
}
