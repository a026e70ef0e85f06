//! Runs one Cell of a run.

use serde::Serialize;

use super::live::LiveRun;
use super::shared::{Shared, words_of};
use super::state::{LiveEntry, Phase, State};
use crate::case::run::{
    CaseRunError, CellEnd, CellResult, CellStatus, PlannedCell, RunObserver, RunWork,
};
use crate::case::service::api::CaseRunFault;

/// Counts and records what a Cell does.
struct CellFollower<'a> {
    shared: &'a Shared,
    live: &'a LiveRun,
}

/// The data of an event `cell`.
#[derive(Serialize)]
struct CellEvent<'a> {
    #[serde(flatten)]
    cell: &'a PlannedCell,
    status: CellStatus,
    overall_score: Option<f64>,
    overall_passed: Option<bool>,
    /// The code of the error.
    error: Option<&'a str>,
}

impl RunObserver for CellFollower<'_> {
    fn planned(&self, _: usize) {}

    fn began(&self, cell: &PlannedCell) {
        if let Some(file) = self.shared.state().file_mut(&self.live.id) {
            file.cells.pending = file.cells.pending.saturating_sub(1);
            file.cells.running += 1;
        }
        let status = CellStatus::Running;
        let event =
            CellEvent { cell, status, overall_score: None, overall_passed: None, error: None };
        self.live.events().append("cell", &event);
    }

    fn ended(&self, result: &CellResult) {
        self.shared.state().count(&self.live.id, result);
        self.live.note_result();
        let end = &result.end;
        let event = CellEvent {
            cell: &result.cell,
            status: end.status,
            overall_score: end.overall_score,
            overall_passed: end.overall_passed,
            error: end.error.as_ref().map(|fault| fault.code.as_str()),
        };
        self.live.events().append("cell", &event);
    }
}

impl State {
    /// Counts a Cell that has ended.
    fn count(&mut self, id: &str, result: &CellResult) {
        let totals = &mut self.totals;
        totals.cells_duration_ms_total += result.end.timing.wall_ms.unwrap_or(0);
        let is_done = result.end.status == CellStatus::Done;
        let (passed, skipped, failed) = (
            u64::from(result.has_passed()),
            u64::from(result.end.status == CellStatus::Skipped),
            u64::from(result.end.status == CellStatus::Failed),
        );
        let not_passed = u64::from(is_done) - passed;
        totals.cells_passed_total += passed;
        totals.cells_not_passed_total += not_passed;
        totals.cells_skipped_total += skipped;
        totals.cells_failed_total += failed;
        let Some(file) = self.file_mut(id) else { return };
        file.cells.running = file.cells.running.saturating_sub(1);
        file.cells.done += u64::from(is_done);
        file.cells.skipped += skipped;
        file.cells.failed += failed;
        file.cells.pending += u64::from(result.end.status == CellStatus::Pending);
        file.passed += passed;
        file.not_passed += not_passed;
    }
}

impl Shared {
    /// Runs one Cell, and ends the run if it was the last.
    pub(super) fn run_cell(&self, live: &LiveRun, cell: &PlannedCell, attempt: u64) {
        let Some(runner) = live.runner() else { return self.give_up(live) };
        let observer = CellFollower { shared: self, live };
        let work = RunWork {
            run: &live.run,
            runner: runner.as_ref(),
            workers: 1,
            stop: &live.stop,
            observer: &observer,
        };
        let ended = work.attempt(cell, attempt);
        // The last one to drop it takes down what it has prepared: before the run ends.
        drop(runner);
        if self.note_end(live, (cell, attempt), &ended) {
            self.end(live);
        }
    }

    /// Notes that a worker has left a Cell; whether it has to end the run.
    fn note_end(
        &self,
        live: &LiveRun,
        (cell, attempt): (&PlannedCell, u64),
        ended: &Result<CellEnd, CaseRunError>,
    ) -> bool {
        let mut state = self.state();
        let Some(file) = state.file_mut(&live.id) else { return false };
        let runs_again = match ended {
            Ok(end) => end.status == CellStatus::Pending && !file.is_canceling,
            Err(error) => {
                // What others of its Cells do could not be recorded either.
                file.is_canceling = true;
                file.error.get_or_insert_with(|| CaseRunFault {
                    code: "case.store_failed".to_owned(),
                    message: words_of(error),
                });
                file.cells.running = file.cells.running.saturating_sub(1);
                file.cells.pending += 1;
                live.stop.cancel();
                false
            }
        };
        let is_canceling = file.is_canceling;
        let Some(entry) = state.live_of(&live.id) else { return false };
        entry.running -= 1;
        if runs_again {
            entry.waiting.push((cell.clone(), attempt.saturating_add(1)));
        }
        if is_canceling {
            entry.waiting.clear();
        }
        entry.ends()
    }

    /// Ends a run whose worker has broken off.
    pub(super) fn give_up(&self, live: &LiveRun) {
        let ends = {
            let mut state = self.state();
            if let Some(file) = state.file_mut(&live.id) {
                file.is_canceling = true;
                file.error.get_or_insert_with(|| CaseRunFault {
                    code: "case.store_failed".to_owned(),
                    message: "a worker of the service broke off".to_owned(),
                });
            }
            live.stop.cancel();
            state.live_of(&live.id).is_some_and(|entry| {
                entry.waiting.clear();
                entry.running = entry.running.saturating_sub(1);
                if entry.phase == Phase::Preparing {
                    entry.phase = Phase::Open;
                }
                entry.ends()
            })
        };
        if ends {
            self.end(live);
        }
    }
}

impl LiveEntry {
    /// Whether nothing is left to do but to end the run, which the caller does then.
    pub(super) fn ends(&mut self) -> bool {
        let ends = self.phase == Phase::Open && self.running == 0 && self.waiting.is_empty();
        if ends {
            self.phase = Phase::Ending;
        }
        ends
    }

    /// The same of a run that is canceled.
    pub(super) fn ends_early(&mut self) -> bool {
        self.waiting.clear();
        if self.phase == Phase::Waiting {
            self.phase = Phase::Ending;
            return true;
        }
        self.ends()
    }
}
