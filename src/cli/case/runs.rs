//! What the commands about runs of Cases do alike.

use std::env;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::case::file::CaseFaults;
use crate::case::run::{CaseRunError, LockedRun, RunAnswer, RunSummary, find_run};
use crate::cli::failure::Failure;
use crate::cli::stdio::print;
use crate::config::{Config, Overrides};
use crate::store::StoreError;

/// The variable with the default of `--store-dir`.
const STORE_VARIABLE: &str = "JOBS_STORE_DIR";

/// The store of runs, which is that of jobs.
#[derive(Debug, Args)]
pub struct RunStoreOption {
    /// The store of runs [JOBS_STORE_DIR, else ./agent-runner-runs]
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
}

impl RunStoreOption {
    /// The directory of the store.
    pub fn directory(&self) -> Result<PathBuf, Failure> {
        if let Some(directory) = &self.store_dir {
            return Ok(directory.clone());
        }
        let (config, mut problems) = Config::read(env::vars_os(), &Overrides::default());
        problems.0.retain(|problem| problem.starts_with(STORE_VARIABLE));
        Ok(problems.none_or(config)?.jobs.store_dir)
    }

    /// The run that `word` means, for this process alone.
    pub fn lock(&self, word: &Path) -> Result<LockedRun, Failure> {
        let found = find_run(&self.directory()?, word).map_err(|error| refused(&error))?;
        found.folder.lock(&found.name).map_err(|error| refused(&error))
    }
}

/// Why a run cannot be used.
pub fn refused(error: &CaseRunError) -> Failure {
    Failure::Usage(error.to_string())
}

/// Why the reports of a run are not written.
pub fn unwritten(error: &CaseRunError) -> Failure {
    match error {
        CaseRunError::Store(StoreError::System { source, .. }) => {
            Failure::Write { what: "the reports", source: (*source).into() }
        }
        error => refused(error),
    }
}

/// Prints what a run has come to.
pub fn print_answer(run: &LockedRun, summary: &RunSummary) -> Result<(), Failure> {
    let answer = RunAnswer {
        run_id: run.manifest().run_id.as_str(),
        dir: &run.path().to_string_lossy(),
        cells: summary.cells,
        passed: summary.passed,
        not_passed: summary.not_passed,
    };
    let json = serde_json::to_string(&answer)
        .map_err(|error| Failure::Write { what: "the result", source: error.into() })?;
    print(&format!("{json}\n"))
}

/// The errors of a case file, each in a line.
pub fn lines_of(faults: &CaseFaults) -> String {
    let line = |path: &str, message: &str| match path {
        "" => message.to_owned(),
        path => format!("{path}: {message}"),
    };
    let lines = faults.errors.iter().map(|error| line(&error.path, &error.message));
    lines.collect::<Vec<_>>().join("\n")
}
