//! Scores of graders, and the result of them all.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How far a mean may lie below a threshold and reach it: the error of sums of floating-point numbers, far below the
/// weight of one test.
const ROUNDING_ERROR: f64 = 1e-12;
/// Ten to the number of places of an overall score.
const PLACES: f64 = 1e4;

/// How much a grader counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GraderWeight {
    /// Its weight in the mean.
    pub weight: f64,
    /// Whether the whole Cell fails with it. A gate has no part in the mean.
    pub gate: bool,
}

/// What a grader found, keys in the order of the contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraderScore {
    /// The grader's type, or the name of a gate of its own.
    pub grader: String,
    /// Between 0 and 1.
    pub value: f64,
    /// Whether the value is good enough for the grader itself.
    pub passed: bool,
    /// Its weight in the mean.
    pub weight: f64,
    /// Whether it is a gate.
    pub gate: bool,
    /// Whether it judged nothing.
    pub skipped: bool,
    /// The reason, in words.
    pub explanation: String,
    /// Numbers and names of the grader's own.
    pub details: Map<String, Value>,
}

/// The result of all graders of a Cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Overall {
    /// The weighted mean, rounded to 4 places.
    pub overall_score: f64,
    /// Whether the unrounded mean reaches the threshold.
    pub overall_passed: bool,
}

impl GraderScore {
    /// A score without details.
    pub fn new(
        grader: impl Into<String>,
        counts: GraderWeight,
        (value, passed): (f64, bool),
        explanation: impl Into<String>,
    ) -> Self {
        let GraderWeight { weight, gate } = counts;
        let (grader, explanation) = (grader.into(), explanation.into());
        Self {
            grader,
            value,
            passed,
            weight,
            gate,
            skipped: false,
            explanation,
            details: Map::new(),
        }
    }

    /// The score of a grader that judges nothing here.
    pub fn skipped(
        grader: impl Into<String>,
        counts: GraderWeight,
        explanation: impl Into<String>,
    ) -> Self {
        Self { skipped: true, ..Self::new(grader, counts, (0.0, false), explanation) }
    }

    /// The same with one detail more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

/// Whether `value` reaches `threshold`, whatever the order in which its parts were added.
pub(super) fn reaches(value: f64, threshold: f64) -> bool {
    value + ROUNDING_ERROR >= threshold
}

/// Combines `scores`: 0 and not passed if a gate failed or nothing was scored, else the weighted mean of those that are
/// neither gates nor skipped.
pub fn combine(scores: &[GraderScore], threshold: f64) -> Overall {
    let failed = Overall { overall_score: 0.0, overall_passed: false };
    let judged = || scores.iter().filter(|score| !score.skipped);
    if judged().any(|score| score.gate && !score.passed) {
        return failed;
    }
    let scored = || judged().filter(|score| !score.gate);
    // Sums of the largest weights would be infinite.
    let largest = scored().map(|score| score.weight).fold(0.0, f64::max);
    let share = |score: &GraderScore| score.weight / largest;
    let mean = scored().map(|score| share(score) * score.value).sum::<f64>()
        / scored().map(share).sum::<f64>();
    // Without scores, or with weights of 0 only, there is no mean.
    if !mean.is_finite() {
        return failed;
    }
    Overall {
        overall_score: (mean * PLACES).round() / PLACES,
        overall_passed: reaches(mean, threshold),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn score(value: f64, weight: f64) -> GraderScore {
        let counts = GraderWeight { weight, gate: false };
        GraderScore::new("tests", counts, (value, value >= 1.0), "")
    }

    fn gate(passed: bool) -> GraderScore {
        let counts = GraderWeight { weight: 1.0, gate: true };
        GraderScore::new("command", counts, (f64::from(u8::from(passed)), passed), "")
    }

    fn skipped(gate: bool) -> GraderScore {
        GraderScore::skipped("trace", GraderWeight { weight: 5.0, gate }, "")
    }

    #[test]
    fn a_score_is_written_as_a_result_has_it() {
        let written = serde_json::to_string(&score(0.5, 2.0).with("returncode", 1)).unwrap();
        let wanted = concat!(
            r#"{"grader":"tests","value":0.5,"passed":false,"weight":2.0,"gate":false,"skipped":false,"#,
            r#""explanation":"","details":{"returncode":1}}"#
        );
        assert_eq!(written, wanted);
        assert_eq!(
            serde_json::from_str::<GraderScore>(wanted).unwrap().details["returncode"],
            json!(1)
        );
    }

    #[test]
    fn scores_are_combined_by_weight_and_gates_decide_before() {
        for (guarantee, scores, threshold, overall) in [
            ("no grader is no pass", vec![], 0.0, (0.0, false)),
            ("gates alone are no pass", vec![gate(true)], 0.0, (0.0, false)),
            ("skipped graders alone are no pass", vec![skipped(false)], 0.0, (0.0, false)),
            ("weights of 0 alone are no pass", vec![score(1.0, 0.0)], 0.0, (0.0, false)),
            ("a failed gate fails", vec![score(1.0, 1.0), gate(false)], 0.0, (0.0, false)),
            ("a passed gate has no weight", vec![score(0.5, 1.0), gate(true)], 0.5, (0.5, true)),
            (
                "a skipped gate is no failed one",
                vec![score(1.0, 1.0), skipped(true)],
                1.0,
                (1.0, true),
            ),
            (
                "skipped graders leave the mean",
                vec![score(1.0, 1.0), skipped(false)],
                1.0,
                (1.0, true),
            ),
            ("the mean is weighted", vec![score(1.0, 3.0), score(0.0, 1.0)], 0.75, (0.75, true)),
            (
                "a weight of 0 changes nothing",
                vec![score(0.0, 0.0), score(1.0, 1.0)],
                1.0,
                (1.0, true),
            ),
            ("4 places", vec![score(2.0 / 3.0, 1.0)], 0.7, (0.6667, false)),
            ("the unrounded mean has to reach", vec![score(0.99996, 1.0)], 1.0, (1.0, false)),
            (
                "the threshold itself passes",
                vec![score(0.1, 1.0), score(0.2, 1.0), score(0.6, 1.0)],
                0.3,
                (0.3, true),
            ),
            (
                "tenths reach their sum",
                vec![score(1.0, 0.7), score(0.0, 0.1), score(0.0, 0.2)],
                0.7,
                (0.7, true),
            ),
            ("a threshold of 0 is reached by 0", vec![score(0.0, 1.0)], 0.0, (0.0, true)),
            (
                "the largest weights have a mean",
                vec![score(1.0, f64::MAX), score(0.0, f64::MAX)],
                0.5,
                (0.5, true),
            ),
            (
                "the smallest weights have a mean",
                vec![score(1.0, 5e-324), score(0.0, 5e-324)],
                0.5,
                (0.5, true),
            ),
        ] {
            let found = combine(&scores, threshold);
            assert_eq!((found.overall_score, found.overall_passed), overall, "{guarantee}");
        }
    }

    #[test]
    fn one_failed_test_in_a_billion_does_not_reach_1() {
        assert!(!reaches(1.0 - 1e-9, 1.0));
        assert!(reaches(0.1 + 0.7, 0.8));
    }
}
