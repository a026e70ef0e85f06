//! Runs the Cells of a run that have no final result, several at a time.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Instant, SystemTime};

use super::plan::PlannedCell;
use super::record::{CellEnd, CellFault, CellStatus};
use super::result::CellResult;
use super::store::{CaseRunError, CellFilesDir, LockedRun};
use crate::evaluation::cache::is_raised;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::utc::rfc3339;

/// The most Cells that run at the same time.
pub const WORKERS_MAX: usize = 256;
/// The error of a Cell whose runner breaks off, wherever that is.
const HARNESS_FAILED: &str = "harness.failed";

/// Runs one Cell from its source to its graded result.
pub trait CellRunner: Send + Sync {
    /// Runs `cell` on this thread and writes its files to `files`. When this returns, nothing of it runs any more.
    ///
    /// An attempt that `stop` ended before it was graded has the status `pending`.
    fn run_cell(&self, cell: &PlannedCell, files: &CellFilesDir, stop: &CancelToken) -> CellEnd;
}

/// Follows a run.
pub trait RunObserver: Send + Sync {
    /// So many Cells are to be run.
    fn planned(&self, cells: usize);

    /// An attempt at `cell` begins.
    fn began(&self, cell: &PlannedCell);

    /// The attempt has ended, and its result is written.
    fn ended(&self, result: &CellResult);
}

/// Cells to run, and by what.
#[derive(Clone, Copy)]
pub struct RunWork<'a> {
    /// The run.
    pub run: &'a LockedRun,
    /// What runs a Cell.
    pub runner: &'a dyn CellRunner,
    /// How many Cells run at the same time, at most [`WORKERS_MAX`].
    pub workers: usize,
    /// Ends the run: the Cells that run are pending again.
    pub stop: &'a CancelToken,
    /// Follows the run.
    pub observer: &'a dyn RunObserver,
}

impl fmt::Debug for RunWork<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RunWork").field("run", &self.run.path()).finish_non_exhaustive()
    }
}

/// What the workers share.
#[derive(Debug, Default)]
struct Queue {
    /// Cells to run with the number of the attempt, the last one first.
    cells: Vec<(PlannedCell, u64)>,
    /// The first result that could not be written.
    failure: Option<CaseRunError>,
}

/// Runs every Cell that is neither done nor skipped, in the order of the run.
///
/// # Errors
/// A result could not be read or written. After the first that could not be written no other Cell begins: its agent
/// would run for nothing.
pub fn run_pending(work: &RunWork<'_>) -> Result<(), CaseRunError> {
    let cells = unfinished(work.run)?;
    let count = cells.len();
    work.observer.planned(count);
    let queue = Mutex::new(Queue { cells, failure: None });
    thread::scope(|scope| {
        for _ in 1..work.workers.min(WORKERS_MAX).min(count) {
            let named = thread::Builder::new().name("cell".to_owned());
            // This thread works in any case; without more threads it takes longer.
            let _ = named.spawn_scoped(scope, || work.drain(&queue));
        }
        work.drain(&queue);
    });
    queue.into_inner().unwrap_or_else(PoisonError::into_inner).failure.map_or(Ok(()), Err)
}

/// The Cells without a final result, the last one first, with the number of their next attempt.
fn unfinished(run: &LockedRun) -> Result<Vec<(PlannedCell, u64)>, CaseRunError> {
    let mut cells = Vec::new();
    for cell in run.manifest().cells.iter().rev() {
        let result = run.result(cell)?;
        if !result.end.status.is_final() {
            cells.push((cell.clone(), result.attempt.saturating_add(1)));
        }
    }
    Ok(cells)
}

impl RunWork<'_> {
    /// Runs Cells until there are none, the run is stopped, or a result cannot be written.
    fn drain(&self, queue: &Mutex<Queue>) {
        while let Some((cell, attempt)) = self.next(queue) {
            if let Err(error) = self.attempt(&cell, attempt) {
                locked(queue).failure.get_or_insert(error);
            }
        }
    }

    fn next(&self, queue: &Mutex<Queue>) -> Option<(PlannedCell, u64)> {
        let mut queue = locked(queue);
        if queue.failure.is_some() || is_raised(self.stop) {
            return None;
        }
        queue.cells.pop()
    }

    /// Runs one Cell, as the attempt of that number.
    ///
    /// # Errors
    /// The result could not be written.
    pub fn attempt(&self, cell: &PlannedCell, attempt: u64) -> Result<CellEnd, CaseRunError> {
        let (started_at, began) = (rfc3339(SystemTime::now()), Instant::now());
        self.observer.began(cell);
        let mut end = match self.run.begin(cell, attempt) {
            Ok(files) => self.run_guarded(cell, &files),
            // What another attempt has left cannot be removed. A full disk refuses the result as well.
            Err(error) => broken("source.failed", &error.to_string()),
        };
        end.timing.started_at = Some(started_at);
        end.timing.finished_at = Some(rfc3339(SystemTime::now()));
        end.timing.wall_ms = Some(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let result = CellResult { cell: cell.clone(), attempt, end };
        self.run.finish(&result)?;
        self.observer.ended(&result);
        Ok(result.end)
    }

    /// Runs the Cell. Where a panic ends the process instead, the Cell is pending for the next one.
    fn run_guarded(&self, cell: &PlannedCell, files: &CellFilesDir) -> CellEnd {
        let run = || self.runner.run_cell(cell, files, self.stop);
        let end = catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|_| broken(HARNESS_FAILED, "the thread of the Cell panicked"));
        match end.status {
            CellStatus::Done | CellStatus::Skipped => end,
            // What was killed fails for no reason of its own.
            _ if is_raised(self.stop) => CellEnd::of(CellStatus::Pending),
            CellStatus::Failed => end,
            CellStatus::Pending | CellStatus::Running => {
                broken(HARNESS_FAILED, "the Cell ended without a result")
            }
        }
    }
}

fn locked(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a Cell whose runner did not say how it ended.
fn broken(code: &str, message: &str) -> CellEnd {
    CellEnd::failed(CellFault {
        code: code.to_owned(),
        step: "cell".to_owned(),
        message: message.to_owned(),
        tail: None,
    })
}
