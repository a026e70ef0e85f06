//! What the reports keep of each Cell in memory.

use crate::case::run::record::CellStatus;
use crate::case::run::result::CellResult;

/// The longest text of a row, bytes.
const TEXT_BYTES_MAX: usize = 500;

/// A Cell in a report.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReportRow {
    pub(super) id: String,
    pub(super) harness: String,
    pub(super) model: String,
    pub(super) status: CellStatus,
    pub(super) passed: bool,
    pub(super) score: Option<f64>,
    pub(super) wall_ms: u64,
    /// The code of its error.
    pub(super) code: Option<String>,
    /// Why it failed, was skipped or did not pass.
    pub(super) reason: String,
}

impl ReportRow {
    /// The row of a result.
    pub(super) fn of(result: &CellResult) -> Self {
        let end = &result.end;
        Self {
            id: result.cell.id.clone(),
            harness: result.cell.harness.clone(),
            model: result.cell.model.clone(),
            status: end.status,
            passed: result.has_passed(),
            score: end.overall_score,
            wall_ms: end.timing.wall_ms.unwrap_or(0),
            code: end.error.as_ref().map(|fault| start(&fault.code)),
            reason: start(&reason(result)),
        }
    }

    /// The word that a reader looks for: whether a graded Cell passed, else its status.
    pub(super) fn verdict(&self) -> &'static str {
        match (self.status, self.passed) {
            (CellStatus::Done, true) => "passed",
            (CellStatus::Done, false) => "not passed",
            (status, _) => status.word(),
        }
    }

    /// The score as a text.
    pub(super) fn score_text(&self) -> String {
        self.score.map_or_else(String::new, |score| format!("{score:.4}"))
    }
}

fn reason(result: &CellResult) -> String {
    let end = &result.end;
    if let Some(fault) = &end.error {
        return format!("{}: {}", fault.code, fault.message);
    }
    if let Some(reason) = &end.skipped_reason {
        return reason.clone();
    }
    let missed = end.scores.iter().filter(|score| score.passed == Some(false));
    let words: Vec<String> =
        missed.map(|score| format!("{}: {}", score.grader, score.explanation)).collect();
    words.join("; ")
}

/// The start of a text.
fn start(text: &str) -> String {
    let cut = text.floor_char_boundary(TEXT_BYTES_MAX);
    text.get(..cut).unwrap_or_default().to_owned()
}
