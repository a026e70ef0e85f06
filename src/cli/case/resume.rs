//! `cofferdam case resume`: goes on with a run.

use std::path::PathBuf;

use clap::Args;

use super::run::{CellRunnerSource, LoadedCase, RunnerRequest, run_to_end, workers};
use super::runs::{RunStoreOption, refused};
use crate::cli::failure::Failure;
use crate::cli::foreground::Foreground;

const AFTER_HELP: &str = "\
Cells that are done or skipped stay as they are. The Case and its source must not have changed.
Exit codes: as of `case run`; 2 also for a Case or a source that changed, or a run in use";

/// Runs the Cells of a run that are neither done nor skipped.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CaseResumeCommand {
    /// The id or the directory of a run, or a Case, for its newest run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    #[command(flatten)]
    store: RunStoreOption,
    /// Run so many Cells at the same time
    #[arg(long, value_name = "N", default_value = "1", value_parser = workers)]
    jobs: usize,
}

impl CaseResumeCommand {
    /// Goes on with the run; returns the exit code of the contract.
    pub fn run(self, source: &dyn CellRunnerSource) -> Result<u8, Failure> {
        let foreground = Foreground::begin()?;
        let run = self.store.lock(&self.run)?;
        let manifest = run.manifest();
        let loaded = LoadedCase::read(&manifest.case_path)?;
        run.check_case(&loaded.yaml).map_err(|error| refused(&error))?;
        // `<store>/cases/<run>`, in whichever store it is.
        let store_dir = run.path().ancestors().nth(2).unwrap_or(run.path()).to_owned();
        let request = RunnerRequest {
            checked: &loaded.checked,
            case_path: &loaded.path,
            options: &manifest.options,
            store_dir: &store_dir,
            workers: self.jobs,
        };
        let digest = source.source_digest(&request)?;
        run.check_source(&digest).map_err(|error| refused(&error))?;
        let runner = source.cell_runner(&request)?;
        run_to_end(&run, runner.as_ref(), self.jobs, &foreground)
    }
}
