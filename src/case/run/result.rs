//! `result.json`: which Cell it is, and what came of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::plan::PlannedCell;
use super::record::{CellEnd, CellFault, CellStatus, CellTiming};

/// The longest `result.json`, bytes.
pub const RESULT_BYTES_MAX: usize = 8 << 20;
/// The longest text of an error or an explanation in a document that was too long, bytes.
const SHORT_TEXT_BYTES_MAX: usize = 2000;

/// The document, keys in the order of the contract. Unknown keys come from later versions and are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// Which Cell it is.
    #[serde(flatten)]
    pub cell: PlannedCell,
    /// How many attempts at it have begun.
    pub attempt: u64,
    /// How the last of them ended.
    #[serde(flatten)]
    pub end: CellEnd,
}

impl CellResult {
    /// The result of a Cell of which only the status is known.
    pub fn of(cell: &PlannedCell, attempt: u64, status: CellStatus) -> Self {
        Self { cell: cell.clone(), attempt, end: CellEnd::of(status) }
    }

    /// Whether it is graded and passed.
    pub fn has_passed(&self) -> bool {
        self.end.status == CellStatus::Done && self.end.overall_passed == Some(true)
    }

    /// The document as a line of JSON of at most [`RESULT_BYTES_MAX`]. A longer one loses details of its scores, then
    /// everything but its verdict.
    ///
    /// # Errors
    /// None is expected: every value has a JSON form.
    pub fn to_line(&self) -> Result<Vec<u8>, serde_json::Error> {
        let whole = line(self)?;
        if whole.len() <= RESULT_BYTES_MAX {
            return Ok(whole);
        }
        let shorter = line(&self.without_details())?;
        if shorter.len() <= RESULT_BYTES_MAX {
            return Ok(shorter);
        }
        line(&self.verdict())
    }

    fn without_details(&self) -> Self {
        let mut shorter = self.clone();
        for score in &mut shorter.end.scores {
            score.details = Map::from_iter([("dropped".to_owned(), Value::from(true))]);
            score.explanation = short(&score.explanation);
        }
        shorter
    }

    fn verdict(&self) -> Self {
        let mut verdict = Self::of(&self.cell, self.attempt, self.end.status);
        verdict.end.overall_score = self.end.overall_score;
        verdict.end.overall_passed = self.end.overall_passed;
        verdict.end.timing = CellTiming { steps_ms: BTreeMap::new(), ..self.end.timing.clone() };
        verdict.end.error = self.end.error.as_ref().map(|fault| CellFault {
            code: short(&fault.code),
            step: short(&fault.step),
            message: short(&fault.message),
            tail: fault.tail.as_deref().map(short),
        });
        verdict.end.skipped_reason = self.end.skipped_reason.as_deref().map(short);
        verdict
    }
}

fn line(result: &CellResult) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = serde_json::to_vec(result)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The start of `text`.
fn short(text: &str) -> String {
    let cut = text.floor_char_boundary(SHORT_TEXT_BYTES_MAX);
    text.get(..cut).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::run::record::{AgentEntry, ScoreEntry};

    fn cell() -> PlannedCell {
        let word = |text: &str| text.to_owned();
        PlannedCell {
            id: word("i"),
            case: word("c"),
            harness: word("h"),
            model: word("m"),
            trial: 1,
        }
    }

    fn done(explanation: &str, protected: Vec<String>) -> CellResult {
        let score = ScoreEntry {
            grader: "tests".to_owned(),
            value: Some(0.75),
            passed: Some(false),
            weight: 1.0,
            gate: false,
            skipped: false,
            explanation: explanation.to_owned(),
            details: Map::from_iter([("tests_passed".to_owned(), Value::from(3))]),
        };
        let end = CellEnd {
            overall_score: Some(0.75),
            overall_passed: Some(false),
            scores: vec![score],
            agent: Some(AgentEntry {
                outcome: "exited".to_owned(),
                protected,
                ..AgentEntry::default()
            }),
            ..CellEnd::of(CellStatus::Done)
        };
        CellResult { cell: cell(), attempt: 2, end }
    }

    #[test]
    fn a_result_has_the_keys_of_the_contract_in_their_order_and_is_read_again() {
        let result = done("3 of 4", Vec::new());
        let text = String::from_utf8(result.to_line().unwrap()).unwrap();
        let wanted = concat!(
            r#"{"id":"i","case":"c","harness":"h","model":"m","trial":1,"attempt":2,"status":"done","#,
            r#""overall_score":0.75,"overall_passed":false,"scores":[{"grader":"tests","value":0.75,"#,
            r#""passed":false,"weight":1.0,"gate":false,"skipped":false,"explanation":"3 of 4","#,
            r#""details":{"tests_passed":3}}],"agent":{"outcome":"exited","exit_code":null,"wall_ms":null,"#,
            r#""protected":[],"tokens":null,"cost_usd":null},"provision":null,"executor":null,"#,
            r#""warnings":[],"error":null,"skipped_reason":null,"timing":{"started_at":null,"#,
            r#""finished_at":null,"wall_ms":null,"steps_ms":{}}}"#,
            "\n",
        );
        assert_eq!(text, wanted);
        assert_eq!(serde_json::from_str::<CellResult>(&text).unwrap(), result);
    }

    #[test]
    fn a_result_that_is_too_long_keeps_its_verdict() {
        for result in [
            done(&"x".repeat(RESULT_BYTES_MAX), Vec::new()),
            done("", vec!["x".repeat(RESULT_BYTES_MAX)]),
        ] {
            let bytes = result.to_line().unwrap();
            assert!(bytes.len() < 10_000, "{}", bytes.len());
            let read: CellResult = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(
                (read.end.status, read.end.overall_score, read.attempt),
                (CellStatus::Done, Some(0.75), 2)
            );
        }
    }

    #[test]
    fn a_score_that_is_no_number_is_read_as_none() {
        let mut result = done("", Vec::new());
        result.end.overall_score = Some(f64::NAN);
        let read: CellResult = serde_json::from_slice(&result.to_line().unwrap()).unwrap();
        assert_eq!(read.end.overall_score, None);
    }
}
