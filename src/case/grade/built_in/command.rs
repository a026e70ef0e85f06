//! `command`: the exit code of a command.

use super::step::{StepRun, run_shell};
use crate::case::cell::CellExecutor;
use crate::case::grade::grader::{GradeError, GradeInputs, Grader};
use crate::case::grade::score::{GraderScore, GraderWeight};

/// Judges the exit code of a command.
#[derive(Debug)]
pub(super) struct CommandGrader {
    pub(super) counts: GraderWeight,
    /// The shell command.
    pub(super) cmd: String,
    /// The exit code of success.
    pub(super) expect_exit: i64,
    /// Limit, seconds.
    pub(super) timeout_s: f64,
}

impl Grader for CommandGrader {
    fn grade(
        &self,
        cell: &dyn CellExecutor,
        inputs: &GradeInputs,
    ) -> Result<Vec<GraderScore>, GradeError> {
        let run = run_shell(cell, &self.cmd, inputs, self.timeout_s)?;
        Ok(vec![self.score(&run)])
    }
}

impl CommandGrader {
    fn score(&self, run: &StepRun) -> GraderScore {
        let passed = !run.timed_out && i64::from(run.returncode) == self.expect_exit;
        let explanation = match (run.timed_out, passed) {
            (true, _) => format!("out of time after {} s", self.timeout_s),
            (false, true) => format!("exit code {}", run.returncode),
            (false, false) => format!("exit code {}, not {}", run.returncode, self.expect_exit),
        };
        let value = f64::from(u8::from(passed));
        let score = GraderScore::new("command", self.counts, (value, passed), explanation)
            .with("returncode", run.returncode);
        if passed { score } else { score.with("tail", run.tail()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_passes_with_its_exit_code_in_time() {
        for (expect_exit, returncode, timed_out, passed) in [
            (0, 0, false, true),
            (0, 1, false, false),
            (2, 2, false, true),
            (2, 0, false, false),
            (0, 124, true, false),
            (124, 124, true, false),
            (124, 124, false, true),
            (137, 137, false, true),
        ] {
            let counts = GraderWeight { weight: 1.0, gate: false };
            let grader = CommandGrader { counts, cmd: String::new(), expect_exit, timeout_s: 1.0 };
            let (stdout, stderr) = ("out".to_owned(), "err".to_owned());
            let run = StepRun { returncode, timed_out, stdout, stderr, truncated: false };
            let score = grader.score(&run);
            let found = (score.passed, score.value, score.details["returncode"].as_u64());
            let value = f64::from(u8::from(passed));
            assert_eq!(found, (passed, value, Some(returncode.into())), "{expect_exit}");
            assert_eq!(score.details.contains_key("tail"), !passed);
        }
    }
}
