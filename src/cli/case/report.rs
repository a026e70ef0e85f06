//! `cofferdam case report`: writes the reports of a run again.

use std::path::PathBuf;

use clap::Args;

use super::runs::{RunStoreOption, print_answer, unwritten};
use crate::case::run::write_reports;
use crate::cli::failure::Failure;

const AFTER_HELP: &str = "\
A Cell whose process was killed counts as pending.
Exit codes: 0 the reports are written; 2 there is no such run, it is in use, or it cannot be written";

/// Makes results.jsonl, junit.xml and report.html of a run from the results of its Cells, and prints what the run has
/// come to.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CaseReportCommand {
    /// The id or the directory of a run, or a Case, for its newest run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    #[command(flatten)]
    store: RunStoreOption,
}

impl CaseReportCommand {
    /// Writes the reports; returns the exit code of the contract.
    pub fn run(self) -> Result<u8, Failure> {
        let run = self.store.lock(&self.run)?;
        let summary = write_reports(&run).map_err(|error| unwritten(&error))?;
        print_answer(&run, &summary)?;
        Ok(0)
    }
}
