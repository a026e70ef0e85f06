//! Proves that a Case tells an agent that does nothing from one that solves it.

use serde::Serialize;

use super::progress::CellProgress;
use super::run::{CellRunnerSource, LoadedCase, RunnerRequest};
use super::runs::refused;
use crate::case::file::{CaseMatrix, MatrixEntry};
use crate::case::run::{
    CellEnd, CellFault, CellFilter, CellStatus, LockedRun, NewRun, PlannedCell, RunDigests,
    RunFolder, RunOptions, RunWork, plan_cells, run_pending,
};
use crate::cli::failure::Failure;
use cofferdam_core::SetupFailure;
use cofferdam_core::job::JobId;
use cofferdam_core::sync::cancel::CancelToken;

/// The start of the name of the directory, below that of temporary files, that holds everything.
const STORE: &str = "cofferdam-prove-";
const NOP: &str = "nop";
const ORACLE: &str = "oracle";
/// The model of both, which neither asks.
const MODEL: &str = "none";

/// How the two harnesses ended that every Case with an oracle has.
#[derive(Debug, Serialize)]
pub struct Proof {
    nop: ProofCell,
    oracle: ProofCell,
}

/// How one of them ended.
#[derive(Debug, Serialize)]
struct ProofCell {
    status: CellStatus,
    overall_score: Option<f64>,
    overall_passed: Option<bool>,
    error: Option<CellFault>,
}

impl Proof {
    /// Whether the agent that does nothing was graded and did not pass, and the oracle passed.
    pub fn holds(&self) -> bool {
        let verdict =
            |cell: &ProofCell| cell.overall_passed.filter(|_| cell.status == CellStatus::Done);
        verdict(&self.nop) == Some(false) && verdict(&self.oracle) == Some(true)
    }
}

impl From<CellEnd> for ProofCell {
    fn from(end: CellEnd) -> Self {
        let CellEnd { status, overall_score, overall_passed, error, .. } = end;
        Self { status, overall_score, overall_passed, error }
    }
}

/// Tries both in a store that is removed afterwards, unless `stop` ends them.
pub fn prove(
    loaded: &LoadedCase,
    executor: Option<String>,
    source: &dyn CellRunnerSource,
    stop: &CancelToken,
) -> Result<Proof, Failure> {
    let store = tempfile::Builder::new().prefix(STORE).tempdir();
    let store = store.map_err(|error| SetupFailure::from_io("make a directory", &error))?;
    let options = RunOptions { executor, keep: false };
    let request = RunnerRequest {
        checked: &loaded.checked,
        case_path: &loaded.path,
        options: &options,
        store_dir: store.path(),
        workers: 1,
    };
    let runner = source.cell_runner(&request)?;
    let folder = RunFolder::open_or_create(store.path()).map_err(|error| refused(&error))?;
    let case = &loaded.checked.case;
    let cells = both(&case.id)?;
    let run = folder.create(&NewRun {
        id: JobId::random(),
        case_path: &loaded.path,
        case_yaml: &loaded.yaml,
        case: &case.id,
        // Nothing goes on with this run.
        digests: RunDigests::of(&loaded.yaml, ""),
        options: options.clone(),
        cells: cells.clone(),
    });
    let run = run.map_err(|error| refused(&error))?;
    let progress = CellProgress::begin();
    let work = RunWork { run: &run, runner: &*runner, workers: 1, stop, observer: &progress };
    run_pending(&work).map_err(|error| refused(&error))?;
    drop(progress);
    Ok(Proof { nop: cell(&run, &cells, NOP)?, oracle: cell(&run, &cells, ORACLE)? })
}

/// The Cells of both.
fn both(case: &str) -> Result<Vec<PlannedCell>, Failure> {
    let entry =
        |harness: &str| MatrixEntry { harness: harness.to_owned(), model: MODEL.to_owned() };
    let matrix = CaseMatrix { entries: vec![entry(NOP), entry(ORACLE)], trials: 1 };
    plan_cells(case, &matrix, &CellFilter::default())
        .map_err(|error| Failure::Usage(error.to_string()))
}

/// How the Cell of `harness` ended.
fn cell(run: &LockedRun, cells: &[PlannedCell], harness: &str) -> Result<ProofCell, Failure> {
    let Some(planned) = cells.iter().find(|cell| cell.harness == harness) else {
        return Ok(CellEnd::of(CellStatus::Pending).into());
    };
    let result = run.result(planned).map_err(|error| refused(&error))?;
    Ok(result.end.into())
}
