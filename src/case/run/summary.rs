//! What a run has come to, in numbers, and the exit code.

use serde::Serialize;

use super::record::CellStatus;
use super::result::CellResult;

/// The exit code of a run without a backend.
const NO_BACKEND: u8 = 5;
/// The exit code of a run with a failed Cell.
const FAILED: u8 = 4;
/// The exit code of a run with a Cell that did not pass.
const NOT_PASSED: u8 = 1;
/// The error of a Cell that had no backend.
const BACKEND_UNAVAILABLE: &str = "backend.unavailable";

/// Cells of a run by what they have come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CellTally {
    /// Graded.
    pub done: u64,
    /// Failed.
    pub failed: u64,
    /// Skipped.
    pub skipped: u64,
    /// Still to be run.
    pub pending: u64,
}

/// What a run has come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Its Cells.
    pub cells: CellTally,
    /// Cells that are graded and passed.
    pub passed: u64,
    /// Cells that are graded and did not pass.
    pub not_passed: u64,
    /// Those of them that the exit code shows: neither `nop` nor `oracle`.
    pub counted_not_passed: u64,
    /// Failed Cells that had no backend.
    pub without_backend: u64,
}

/// What `case run` prints, keys in this order.
#[derive(Debug, Serialize)]
pub struct RunAnswer<'a> {
    /// The run.
    pub run_id: &'a str,
    /// Its directory.
    pub dir: &'a str,
    /// Its Cells.
    pub cells: CellTally,
    /// Cells that passed.
    pub passed: u64,
    /// Cells that did not.
    pub not_passed: u64,
}

/// Whether Cells of this harness are no attempts at the task: they show that the Case is sound.
pub(super) fn is_control(harness: &str) -> bool {
    matches!(harness, "nop" | "oracle")
}

impl RunSummary {
    /// Counts a Cell.
    pub fn add(&mut self, result: &CellResult) {
        match result.end.status {
            CellStatus::Pending | CellStatus::Running => self.cells.pending += 1,
            CellStatus::Skipped => self.cells.skipped += 1,
            CellStatus::Failed => {
                self.cells.failed += 1;
                let code = result.end.error.as_ref().map(|fault| fault.code.as_str());
                self.without_backend += u64::from(code == Some(BACKEND_UNAVAILABLE));
            }
            CellStatus::Done if result.has_passed() => {
                self.cells.done += 1;
                self.passed += 1;
            }
            CellStatus::Done => {
                self.cells.done += 1;
                self.not_passed += 1;
                self.counted_not_passed += u64::from(!is_control(&result.cell.harness));
            }
        }
    }

    /// The exit code of a run, which `signal` may have ended before all its Cells were run.
    pub fn exit_code(&self, signal: Option<u8>) -> u8 {
        match signal {
            Some(code) if self.cells.pending > 0 => code,
            _ if self.without_backend > 0 => NO_BACKEND,
            // A Cell is pending without a signal if its result could not be written.
            _ if self.cells.failed > 0 || self.cells.pending > 0 => FAILED,
            _ if self.counted_not_passed > 0 => NOT_PASSED,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::run::plan::PlannedCell;
    use crate::case::run::record::{CellEnd, CellFault};

    fn result(harness: &str, status: CellStatus, passed: Option<bool>, code: &str) -> CellResult {
        let word = |text: &str| text.to_owned();
        let cell = PlannedCell {
            id: word("i"),
            case: word("c"),
            harness: word(harness),
            model: word("m"),
            trial: 1,
        };
        let fault = CellFault { code: word(code), step: word("s"), message: word("m"), tail: None };
        let error = (!code.is_empty()).then_some(fault);
        let end = CellEnd { overall_passed: passed, error, ..CellEnd::of(status) };
        CellResult { cell, attempt: 1, end }
    }

    #[test]
    fn the_exit_code_is_the_first_of_the_contract_that_holds() {
        let passed = || result("mine", CellStatus::Done, Some(true), "");
        let missed = || result("mine", CellStatus::Done, Some(false), "");
        let rejected = || result("mine", CellStatus::Done, Some(false), "patch.rejected");
        let failed = || result("mine", CellStatus::Failed, None, "setup.failed");
        let homeless = || result("mine", CellStatus::Failed, None, BACKEND_UNAVAILABLE);
        let skipped = || result("mine", CellStatus::Skipped, None, "");
        let pending = || result("mine", CellStatus::Pending, None, "");
        let nop = || result("nop", CellStatus::Done, Some(false), "");
        let oracle = || result("oracle", CellStatus::Done, Some(false), "");
        for (results, signal, wanted) in [
            (vec![passed(), skipped(), nop(), oracle()], None, 0),
            (vec![passed(), missed()], None, 1),
            (vec![rejected()], None, 1),
            (vec![missed(), failed()], None, 4),
            (vec![failed(), homeless(), missed()], None, 5),
            (vec![passed(), pending()], Some(130), 130),
            (vec![homeless(), pending()], Some(143), 143),
            (vec![passed()], Some(130), 0),
            (vec![pending()], None, 4),
            (vec![], None, 0),
        ] {
            let mut summary = RunSummary::default();
            results.iter().for_each(|result| summary.add(result));
            assert_eq!(summary.exit_code(signal), wanted, "{summary:?}");
        }
    }

    #[test]
    fn cells_of_nop_and_oracle_are_counted_but_not_held_against_the_run() {
        let mut summary = RunSummary::default();
        for harness in ["nop", "oracle", "mine"] {
            summary.add(&result(harness, CellStatus::Done, Some(false), ""));
        }
        assert_eq!((summary.cells.done, summary.not_passed, summary.counted_not_passed), (3, 3, 1));
    }
}
