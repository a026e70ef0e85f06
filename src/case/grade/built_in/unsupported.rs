//! Graders of other programs, which are skipped.

use crate::case::cell::CellExecutor;
use crate::case::grade::grader::{GradeError, GradeInputs, Grader};
use crate::case::grade::score::{GraderScore, GraderWeight};

/// A grader that judges nothing here.
#[derive(Debug)]
pub(super) struct UnsupportedGrader {
    pub(super) counts: GraderWeight,
    /// Its type.
    pub(super) name: String,
}

impl Grader for UnsupportedGrader {
    fn grade(&self, _: &dyn CellExecutor, _: &GradeInputs) -> Result<Vec<GraderScore>, GradeError> {
        let words = format!("graders of type '{}' are skipped", self.name);
        Ok(vec![GraderScore::skipped(self.name.as_str(), self.counts, words)])
    }
}
