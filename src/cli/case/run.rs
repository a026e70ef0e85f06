//! `cofferdam case run`: runs every Cell of a Case.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use uuid::Uuid;

use super::progress::CellProgress;
use super::runs::{RunStoreOption, lines_of, print_answer, refused, unwritten};
use crate::case::file::{CheckedCase, load_case};
use crate::case::run::schedule::WORKERS_MAX;
use crate::case::run::{
    CellFilter, CellRunner, LockedRun, NewRun, RunDigests, RunFolder, RunOptions, RunWork,
    case_file, plan_cells, run_pending, write_reports,
};
use crate::cli::failure::{Failure, error_words};
use crate::cli::foreground::Foreground;
use crate::cli::options::value_parsers;
use crate::cli::stdio::say;
use cofferdam_core::job::JobId;

const EXAMPLES: &str = "\
Examples:
  cofferdam case run cases/fix-add --jobs 4
  cofferdam case run cases/fix-add --harness mine --model m --trials 10 | jq .passed

SIGINT or SIGTERM ends the run; `case resume` goes on with it.
Exit codes: 2 bad request, or the run's id is taken; otherwise the first that holds: 130 or 143 ended by a
  signal; 5 no backend; 4 a Cell failed; 1 a Cell did not pass, nop and oracle left out; 0";

/// Runs every Cell of a Case, and prints what the run has come to.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CaseRunCommand {
    /// The case file, or a directory with case.yaml
    #[arg(value_name = "CASE")]
    case: PathBuf,
    #[command(flatten)]
    store: RunStoreOption,
    /// The id of the run [default: a random one]
    #[arg(long, value_name = "I", value_parser = JobId::parse)]
    run_id: Option<JobId>,
    /// Run so many Cells at the same time
    #[arg(long, value_name = "N", default_value = "1", value_parser = workers)]
    jobs: usize,
    /// Run so many trials instead of the Case's
    #[arg(long, value_name = "N", value_parser = value_parsers::count)]
    trials: Option<u64>,
    /// Run only this harness; may be repeated
    #[arg(long, value_name = "H")]
    harness: Vec<String>,
    /// Run only this model; may be repeated
    #[arg(long, value_name = "M")]
    model: Vec<String>,
    /// What runs the commands [default: container if the Case has one, else sandboxed]
    #[arg(long, value_name = "E", value_parser = ["sandboxed", "local", "container"])]
    executor: Option<String>,
    /// Keep the sandbox, the environment and the container of each Cell
    #[arg(long)]
    keep: bool,
}

/// What a runner of Cells is made for.
#[derive(Debug, Clone, Copy)]
pub struct RunnerRequest<'a> {
    /// The Case.
    pub checked: &'a CheckedCase,
    /// Its file, with every link followed.
    pub case_path: &'a Path,
    /// How its Cells are run.
    pub options: &'a RunOptions,
    /// The store of the run.
    pub store_dir: &'a Path,
    /// Cells that run at the same time.
    pub workers: usize,
}

/// Makes runners of Cells.
pub trait CellRunnerSource {
    /// The digest of all that the Cells read besides the case file.
    fn source_digest(&self, request: &RunnerRequest<'_>) -> Result<String, Failure>;

    /// The runner. What is wrong with a backend is a result of its Cells.
    fn cell_runner(&self, request: &RunnerRequest<'_>) -> Result<Box<dyn CellRunner>, Failure>;
}

impl CaseRunCommand {
    /// Runs the Case; returns the exit code of the contract.
    pub fn run(self, source: &dyn CellRunnerSource) -> Result<u8, Failure> {
        let foreground = Foreground::begin()?;
        let loaded = LoadedCase::read(&self.case)?;
        let case = &loaded.checked.case;
        let filter =
            CellFilter { harnesses: self.harness, models: self.model, trials: self.trials };
        let cells = plan_cells(&case.id, &case.matrix, &filter)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let store_dir = self.store.directory()?;
        let folder = RunFolder::open_or_create(&store_dir).map_err(|error| refused(&error))?;
        let options = RunOptions { executor: self.executor, keep: self.keep };
        let request = RunnerRequest {
            checked: &loaded.checked,
            case_path: &loaded.path,
            options: &options,
            store_dir: &store_dir,
            workers: self.jobs,
        };
        let digest = source.source_digest(&request)?;
        let runner = source.cell_runner(&request)?;
        let run = folder
            .create(&NewRun {
                id: self.run_id.unwrap_or_else(random_id),
                case_path: &loaded.path,
                case_yaml: &loaded.yaml,
                case: &case.id,
                digests: RunDigests::of(&loaded.yaml, digest),
                options: options.clone(),
                cells,
            })
            .map_err(|error| refused(&error))?;
        run_to_end(&run, runner.as_ref(), self.jobs, &foreground)
    }
}

/// A Case with its file.
#[derive(Debug)]
pub struct LoadedCase {
    /// The Case.
    pub checked: CheckedCase,
    /// Its file, with every link followed.
    pub path: PathBuf,
    /// The content of the file.
    pub yaml: Vec<u8>,
}

impl LoadedCase {
    /// Reads the Case at `path`: the file, or a directory with `case.yaml`.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let checked = load_case(path).map_err(|faults| Failure::Usage(lines_of(&faults)))?;
        let fault = |error: std::io::Error| {
            Failure::Usage(format!("{}: {}", path.display(), error_words(&error)))
        };
        let path = case_file(path).canonicalize().map_err(fault)?;
        let yaml = fs::read(&path).map_err(fault)?;
        Ok(Self { checked, path, yaml })
    }
}

/// Runs the Cells that have no final result, writes the reports and prints what the run has come to.
pub fn run_to_end(
    run: &LockedRun,
    runner: &dyn CellRunner,
    workers: usize,
    foreground: &Foreground,
) -> Result<u8, Failure> {
    let progress = CellProgress::begin();
    let stop = foreground.watch().cancel;
    let work = RunWork { run, runner, workers, stop: &stop, observer: &progress };
    let ran = run_pending(&work);
    drop(progress);
    if let Err(error) = ran {
        say(&format!("cofferdam: {error}"));
    }
    let summary = write_reports(run).map_err(|error| unwritten(&error))?;
    print_answer(run, &summary)?;
    Ok(summary.exit_code(foreground.signal_code()))
}

/// Parses a number of Cells that run at the same time.
pub fn workers(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok();
    number
        .filter(|number| (1..=WORKERS_MAX).contains(number))
        .ok_or_else(|| format!("want a whole number from 1 to {WORKERS_MAX}"))
}

fn random_id() -> JobId {
    let id = format!("run_{}", Uuid::new_v4());
    JobId::parse(&id).unwrap_or_else(|_| JobId::random())
}
