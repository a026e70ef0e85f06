//! Runs of scripted Cells in temporary stores.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::case::file::{CaseMatrix, MatrixEntry};
use crate::case::run::{
    CaseRunError, CellEnd, CellFault, CellFile, CellFilesDir, CellFilter, CellResult, CellRunner,
    CellStatus, LockedRun, NewRun, PlannedCell, RunDigests, RunFolder, RunObserver, RunOptions,
    RunWork, ScoreEntry, plan_cells, run_pending,
};
use cofferdam_core::job::JobId;
use cofferdam_core::sync::cancel::CancelToken;

pub const YAML: &[u8] = b"id: c\n";

/// Runs Cells by a function.
pub struct Scripted<F>(pub F);

impl<F: Fn(&PlannedCell, &CellFilesDir, &CancelToken) -> CellEnd + Send + Sync> CellRunner
    for Scripted<F>
{
    fn run_cell(&self, cell: &PlannedCell, files: &CellFilesDir, stop: &CancelToken) -> CellEnd {
        (self.0)(cell, files, stop)
    }
}

/// A runner of the function `run`.
pub fn scripted<F>(run: F) -> Scripted<F>
where
    F: Fn(&PlannedCell, &CellFilesDir, &CancelToken) -> CellEnd + Send + Sync,
{
    Scripted(run)
}

/// Follows nothing.
pub struct Unobserved;

impl RunObserver for Unobserved {
    fn planned(&self, _: usize) {}

    fn began(&self, _: &PlannedCell) {}

    fn ended(&self, _: &CellResult) {}
}

pub fn cells(harnesses: &[&str], trials: u64) -> Vec<PlannedCell> {
    let entry =
        |harness: &&str| MatrixEntry { harness: (*harness).to_owned(), model: "m".to_owned() };
    let matrix = CaseMatrix { entries: harnesses.iter().map(entry).collect(), trials: 1 };
    let filter = CellFilter { trials: Some(trials), ..CellFilter::default() };
    plan_cells("c", &matrix, &filter).unwrap()
}

pub fn new_run(id: &str, cells: Vec<PlannedCell>) -> NewRun<'static> {
    NewRun {
        id: JobId::parse(id).unwrap(),
        case_path: Path::new("/cases/c/case.yaml"),
        case_yaml: YAML,
        case: "c",
        digests: RunDigests::of(YAML, "source"),
        options: RunOptions::default(),
        cells,
    }
}

pub fn create(store: &Path, id: &str, cells: Vec<PlannedCell>) -> LockedRun {
    RunFolder::open_or_create(store).unwrap().create(&new_run(id, cells)).unwrap()
}

pub fn locked(store: &Path, id: &str) -> Result<LockedRun, CaseRunError> {
    RunFolder::open(store).unwrap().unwrap().lock(id)
}

/// Runs what is not final with this many workers.
pub fn run(run: &LockedRun, workers: usize, runner: &dyn CellRunner) -> Result<(), CaseRunError> {
    let stop = CancelToken::new().unwrap();
    run_pending(&RunWork { run, runner, workers, stop: &stop, observer: &Unobserved })
}

/// The end of a graded Cell that wrote `words`.
pub fn graded(files: &CellFilesDir, words: &str, passed: bool) -> CellEnd {
    files.write(CellFile::Output, words.as_bytes()).unwrap();
    let score = if passed { 1.0 } else { 0.5 };
    let entry = ScoreEntry {
        grader: "tests".to_owned(),
        value: Some(score),
        passed: Some(passed),
        weight: 1.0,
        gate: false,
        skipped: false,
        explanation: words.to_owned(),
        details: serde_json::Map::new(),
    };
    CellEnd {
        overall_score: Some(score),
        overall_passed: Some(passed),
        scores: vec![entry],
        ..CellEnd::of(CellStatus::Done)
    }
}

pub fn failed(code: &str) -> CellEnd {
    CellEnd::failed(CellFault {
        code: code.to_owned(),
        step: "setup".to_owned(),
        message: "it broke".to_owned(),
        tail: Some("last words".to_owned()),
    })
}

pub fn result(run: &LockedRun, number: usize) -> CellResult {
    run.result(&run.manifest().cells[number]).unwrap()
}

pub fn statuses(run: &LockedRun) -> Vec<CellStatus> {
    let cells = run.manifest().cells.iter();
    cells.map(|cell| run.result(cell).unwrap().end.status).collect()
}

/// Every file below `directory` with its content.
pub fn files_below(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}
