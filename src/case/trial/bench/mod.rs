//! Trials for users of the library: one at a time, with parts of their own.

mod error;
mod open;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

pub use self::error::TrialBenchError;
use self::open::BenchPlan;
use super::digest::inputs_digest;
use super::hosts::{RunHost, TrialHosts};
use super::own::OwnParts;
use super::runner::TrialRunner;
use crate::case::file::{Case, CaseMatrix, MatrixEntry, load_case};
use crate::case::run::{
    CellFilter, CellResult, CellStatus, CellWarning, NewRun, PlanError, PlannedCell, RunDigests,
    RunFolder, RunObserver, RunOptions, RunWork, case_file, plan_cells, run_pending,
};
use crate::evaluation::cache::is_raised;
use cofferdam_core::job::JobId;
use cofferdam_core::sync::cancel::CancelToken;

/// Tries agents in Cells of one Case and grades their work, one Cell at a time, with parts of the caller's in place of
/// ours.
///
/// Each trial is a run of the store that has one Cell: `cofferdam case report` reads it. Its source and its shared
/// environment are made once for all trials of the bench.
#[derive(Debug)]
pub struct TrialBench {
    // Dropped before the directory, in which its files are.
    runner: TrialRunner<RunHost>,
    _hosts: TrialHosts,
    case: Case,
    case_path: PathBuf,
    case_yaml: Vec<u8>,
    store: PathBuf,
    runs: RunFolder,
    keep: bool,
    /// Held by the thread whose Cell runs.
    turn: Mutex<()>,
}

/// Settings of a [`TrialBench`].
#[derive(Debug)]
pub struct TrialBenchBuilder {
    case: PathBuf,
    store: PathBuf,
    own: OwnParts,
    variables: BTreeMap<String, String>,
    helper: Option<PathBuf>,
    keep: bool,
}

/// Nobody follows a run of one Cell.
struct NoObserver;

impl RunObserver for NoObserver {
    fn planned(&self, _: usize) {}
    fn began(&self, _: &PlannedCell) {}
    fn ended(&self, _: &CellResult) {}
}

impl TrialBench {
    /// A bench for `case`, the file or a directory with `case.yaml`, whose runs are in the directory `store`.
    pub fn builder(case: impl Into<PathBuf>, store: impl Into<PathBuf>) -> TrialBenchBuilder {
        TrialBenchBuilder {
            case: case.into(),
            store: store.into(),
            own: OwnParts::default(),
            variables: BTreeMap::new(),
            helper: None,
            keep: false,
        }
    }

    /// Runs one trial of `harness` with `model` on this thread, until it is graded or `stop` is raised. The matrix of the
    /// Case need not have them. Another thread's call waits. How a trial ends is never an error: its status may be `failed`, or `pending` if it was
    /// stopped.
    ///
    /// # Errors
    /// The Case or its source cannot be read any more, or the store cannot be written.
    pub fn run(
        &self,
        harness: &str,
        model: &str,
        stop: &CancelToken,
    ) -> Result<CellResult, TrialBenchError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = MatrixEntry { harness: harness.to_owned(), model: model.to_owned() };
        let matrix = CaseMatrix { entries: vec![entry], trials: 1 };
        let cells = plan_cells(&self.case.id, &matrix, &CellFilter::default())?;
        let Some(cell) = cells.first().cloned() else { return Err(PlanError::Empty.into()) };
        let left_out = std::slice::from_ref(&self.store);
        let source = match inputs_digest(&self.case, &self.case_path, left_out, stop) {
            Err(_) if is_raised(stop) => return Ok(CellResult::of(&cell, 0, CellStatus::Pending)),
            digest => digest.map_err(TrialBenchError::Inputs)?,
        };
        let run = self.runs.create(&NewRun {
            id: run_id(),
            case_path: &self.case_path,
            case_yaml: &self.case_yaml,
            case: &self.case.id,
            digests: RunDigests::of(&self.case_yaml, source),
            options: RunOptions { executor: None, keep: self.keep },
            cells,
        })?;
        let observer = &NoObserver;
        run_pending(&RunWork { run: &run, runner: &self.runner, workers: 1, stop, observer })?;
        Ok(run.result(&cell)?)
    }
}

impl TrialBenchBuilder {
    /// Takes these parts in place of ours.
    #[must_use]
    pub fn own(mut self, own: OwnParts) -> Self {
        self.own = own;
        self
    }

    /// Gives these variables to the bench, in place of those of a process: `CASES_*`, those that name indexes, and the
    /// keys of models.
    #[must_use]
    pub fn variables(mut self, variables: BTreeMap<String, String>) -> Self {
        self.variables = variables;
        self
    }

    /// The program `cofferdam`, which Cells in directories and containers need. Unless given, this process's own.
    #[must_use]
    pub fn helper(mut self, helper: impl Into<PathBuf>) -> Self {
        self.helper = Some(helper.into());
        self
    }

    /// Keeps the files of each Cell in its directory of the store.
    #[must_use]
    pub fn keep(mut self, keep: bool) -> Self {
        self.keep = keep;
        self
    }

    /// Opens the bench.
    ///
    /// # Errors
    /// The Case has errors, a variable is wrong, or this host cannot have sandboxes.
    pub fn build(self) -> Result<TrialBench, TrialBenchError> {
        let Self { case, store, own, variables, helper, keep } = self;
        let checked = load_case(&case).map_err(TrialBenchError::Case)?;
        let case_path = case_file(&case).canonicalize().map_err(cannot_read(&case))?;
        let case_yaml = fs::read(&case_path).map_err(cannot_read(&case_path))?;
        let store = std::path::absolute(&store).map_err(cannot_read(&store))?;
        let runs = RunFolder::open_or_create(&store)?;
        let helper = helper.map_or_else(std::env::current_exe, Ok);
        let helper = helper.map_err(cannot_read(Path::new("/proc/self/exe")))?;
        let plan = BenchPlan {
            case: &checked.case,
            case_path: &case_path,
            store: &store,
            variables: &variables,
            helper: &helper,
            keep,
        };
        let (host, hosts) = open::open(&plan, own)?;
        let warnings = checked.warnings.iter().map(CellWarning::of).collect();
        let runner = TrialRunner::new(host, warnings);
        let case = checked.case;
        Ok(TrialBench {
            runner,
            _hosts: hosts,
            case,
            case_path,
            case_yaml,
            store,
            runs,
            keep,
            turn: Mutex::new(()),
        })
    }
}

fn run_id() -> JobId {
    JobId::parse(&format!("run_{}", Uuid::new_v4())).unwrap_or_else(|_| JobId::random())
}

fn cannot_read(path: &Path) -> impl FnOnce(std::io::Error) -> TrialBenchError {
    move |source| TrialBenchError::File { path: path.to_owned(), source }
}
