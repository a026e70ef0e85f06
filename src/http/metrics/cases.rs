//! The metric families of Cases.

use std::fmt;

use super::families::FamilyEncoder;
use crate::case::service::CaseRunCounts;

/// Milliseconds in a second.
const MS_PER_SECOND: f64 = 1000.0;

impl FamilyEncoder<'_> {
    /// Runs of Cases and their Cells.
    pub fn cases(&mut self, counts: &CaseRunCounts) -> fmt::Result {
        let ended = [("done", counts.runs_done_total), ("canceled", counts.runs_canceled_total)];
        let ended = ended.map(|(status, count)| (vec![("status", status)], count));
        let help = "Runs of Cases that have ended, by their last state.";
        self.counters("cofferdam_case_runs", help, ended)?;
        let help = "Runs of Cases that wait.";
        self.gauge("cofferdam_case_runs_queued", help, counts.runs_queued)?;
        let help = "Runs of Cases whose Cells run.";
        self.gauge("cofferdam_case_runs_running", help, counts.runs_running)?;
        let ended = [
            ("passed", counts.cells_passed_total),
            ("not_passed", counts.cells_not_passed_total),
            ("skipped", counts.cells_skipped_total),
            ("failed", counts.cells_failed_total),
        ];
        let ended = ended.map(|(result, count)| (vec![("result", result)], count));
        self.counters("cofferdam_cells", "Cells that have ended, by result.", ended)?;
        self.gauge("cofferdam_cells_running", "Cells that run now.", counts.cells_running)?;
        let help = "The maximum number of concurrent Cells.";
        self.gauge("cofferdam_cells_max", help, counts.cells_capacity)?;
        let help = "The time of all Cells that have ended.";
        #[expect(clippy::cast_precision_loss, reason = "exact for 285,000 years")]
        let seconds = counts.cells_duration_ms_total as f64 / MS_PER_SECOND;
        self.counter("cofferdam_cells_seconds", help, &seconds)
    }
}
