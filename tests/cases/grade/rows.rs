//! What is graded, and the scores.

use serde_json::{Value, json};

/// One grader and what has to come of it.
pub struct GradeRow {
    /// The guarantee, in words.
    pub guarantee: &'static str,
    /// What is done to the sandbox before.
    pub before: &'static str,
    /// The grader as a Case has it.
    pub grader: &'static str,
    /// Its value.
    pub value: f64,
    /// Whether it passes.
    pub passed: bool,
    /// Details that it has; others are not compared.
    pub details: Value,
}

/// Guarantee, what is done before, the grader, its value, whether it passes, and details as JSON.
pub type Written = (&'static str, &'static str, &'static str, f64, bool, &'static str);

pub fn table(written: &[Written]) -> Vec<GradeRow> {
    let row = |(guarantee, before, grader, value, passed, details): &Written| GradeRow {
        guarantee,
        before,
        grader,
        value: *value,
        passed: *passed,
        details: if details.is_empty() {
            json!({})
        } else {
            serde_json::from_str(details).unwrap()
        },
    };
    written.iter().map(row).collect()
}
