//! `tests`: the tests that a command runs, as its reports count them, or its output if it has none.

use serde_json::{Value, json};

use super::step::{StepRun, run_shell};
use crate::case::cell::{CellExecutor, ExecCode};
use crate::case::file::TestCounts;
use crate::case::grade::counted::CountedTests;
use crate::case::grade::counts::console_counts;
use crate::case::grade::files::{
    ReadReports, ReportPatterns, inject_files, read_reports, remove_reports,
};
use crate::case::grade::grader::{GradeError, GradeInputs, Grader};
use crate::case::grade::score::{GraderScore, GraderWeight, reaches};

/// The most paths in the details of a score.
const PATHS_MAX: usize = 20;

/// Counts the tests of a command.
#[derive(Debug)]
pub(super) struct TestsGrader {
    pub(super) counts: GraderWeight,
    /// The shell command.
    pub(super) cmd: String,
    /// How tests are counted.
    pub(super) tests: TestCounts,
}

/// What a grader says of counted tests.
#[derive(Debug, Clone, PartialEq)]
pub struct TestVerdict {
    /// The fraction that passed.
    pub value: f64,
    /// Whether it reaches the threshold of the grader.
    pub passed: bool,
    /// The reason, in words.
    pub explanation: String,
}

/// The verdict of a grader with the settings `tests` on tests that ran in time.
pub fn test_verdict(tests: &TestCounts, counted: CountedTests) -> TestVerdict {
    let total = counted.total();
    if total == 0 {
        return TestVerdict::failed("no tests were counted");
    }
    if let Some(wanted) = tests.expect_total
        && i64::try_from(total) != Ok(wanted)
    {
        return TestVerdict::failed(format!("{total} tests were counted, not {wanted}"));
    }
    let value = counted.fraction();
    let passed = reaches(value, tests.pass_threshold);
    let explanation = format!("{} of {total} tests passed", counted.passed);
    TestVerdict { value, passed, explanation }
}

impl TestVerdict {
    /// One of 0.
    pub fn failed(explanation: impl Into<String>) -> Self {
        Self { value: 0.0, passed: false, explanation: explanation.into() }
    }
}

impl Grader for TestsGrader {
    fn grade(
        &self,
        cell: &dyn CellExecutor,
        inputs: &GradeInputs,
    ) -> Result<Vec<GraderScore>, GradeError> {
        let patterns = ReportPatterns::parse(&self.tests.junit_xml)?;
        // One that the source has is of another run.
        remove_reports(cell, &patterns)?;
        inject_files(cell, &inputs.hidden, &self.tests.inject)?;
        let run = run_shell(cell, &self.cmd, inputs, self.tests.timeout_s)?;
        if self.tests.junit_xml.is_empty() {
            return Ok(vec![self.score_of_console(&run)]);
        }
        Ok(vec![match read_reports(cell, &patterns) {
            Ok(reports) => self.score_of_reports(&run, &reports),
            // Tests can write as many files as the Cell has room for.
            Err(error) if error.code == ExecCode::TooLarge => {
                self.score(&run, CountedTests::default(), TestVerdict::failed(error.message))
            }
            Err(error) => return Err(error.into()),
        }])
    }
}

impl TestsGrader {
    fn score_of_console(&self, run: &StepRun) -> GraderScore {
        // The summary comes last, and the first bytes are kept.
        if run.truncated {
            let words =
                "the output is longer than 'limits' keeps of it, so its summary is not known";
            return self.score(run, CountedTests::default(), TestVerdict::failed(words));
        }
        let counted = console_counts(&run.stdout, &run.stderr).unwrap_or_default();
        let verdict = if counted.failed == 0 && counted.passed > 0 && run.returncode != 0 {
            let code = run.returncode;
            TestVerdict::failed(format!("no test failed, but the exit code is {code}"))
        } else {
            test_verdict(&self.tests, counted)
        };
        self.score(run, counted, verdict)
    }

    fn score_of_reports(&self, run: &StepRun, reports: &ReadReports) -> GraderScore {
        let verdict = test_verdict(&self.tests, reports.counted);
        let used: Vec<&String> = reports.used.iter().take(PATHS_MAX).collect();
        let score = self.score(run, reports.counted, verdict).with("reports", json!(used));
        if reports.unusable.is_empty() {
            return score;
        }
        let unusable = reports.unusable.iter().take(PATHS_MAX);
        let unusable = unusable.map(|(path, reason)| json!({"path": path, "reason": reason}));
        score.with("unusable", unusable.collect::<Vec<Value>>())
    }

    /// The score of `verdict`, or of a command that was out of time.
    fn score(&self, run: &StepRun, counted: CountedTests, verdict: TestVerdict) -> GraderScore {
        let verdict = match run.timed_out {
            true => TestVerdict::failed(format!("out of time after {} s", self.tests.timeout_s)),
            false => verdict,
        };
        let TestVerdict { value, passed, explanation } = verdict;
        let score = GraderScore::new("tests", self.counts, (value, passed), explanation)
            .with("returncode", run.returncode)
            .with("tests_passed", counted.passed)
            .with("tests_total", counted.total());
        if passed { score } else { score.with("tail", run.tail()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(expect_total: Option<i64>, pass_threshold: f64) -> TestCounts {
        let (inject, junit_xml) = (Vec::new(), Vec::new());
        TestCounts { inject, junit_xml, expect_total, pass_threshold, timeout_s: 5.0 }
    }

    fn grader() -> TestsGrader {
        let counts = GraderWeight { weight: 1.0, gate: false };
        TestsGrader { counts, cmd: String::new(), tests: settings(None, 1.0) }
    }

    fn run(returncode: u32, stdout: &str) -> StepRun {
        let (stdout, stderr) = (stdout.to_owned(), String::new());
        StepRun { returncode, timed_out: returncode == 124, stdout, stderr, truncated: false }
    }

    #[test]
    fn a_verdict_is_the_fraction_unless_the_total_is_wrong() {
        for (passed, failed, expect_total, threshold, wanted) in [
            (3, 1, None, 1.0, (0.75, false)),
            (3, 1, None, 0.75, (0.75, true)),
            (3, 1, Some(4), 0.5, (0.75, true)),
            (3, 1, Some(5), 0.5, (0.0, false)),
            (3, 0, Some(2), 1.0, (0.0, false)),
            (0, 0, None, 0.0, (0.0, false)),
            (0, 0, Some(0), 0.0, (0.0, false)),
            (0, 2, None, 0.0, (0.0, true)),
            (3, 0, None, 1.0, (1.0, true)),
            (1, 2, None, 1.0 / 3.0, (1.0 / 3.0, true)),
        ] {
            let counted = CountedTests { passed, failed };
            let verdict = test_verdict(&settings(expect_total, threshold), counted);
            assert_eq!((verdict.value, verdict.passed), wanted, "{passed} {failed}");
        }
    }

    #[test]
    fn the_console_counts_unless_it_is_green_with_an_exit_code_cut_or_late() {
        for (guarantee, run, value, passed, counts) in [
            ("row 33", run(1, "3 passed, 1 failed"), 0.75, false, (3, 4)),
            ("no summary", run(0, "fine"), 0.0, false, (0, 0)),
            ("green with an exit code", run(1, "3 passed"), 0.0, false, (3, 3)),
            ("green", run(0, "3 passed"), 1.0, true, (3, 3)),
            ("late", run(124, "3 passed"), 0.0, false, (3, 3)),
            ("cut", StepRun { truncated: true, ..run(0, "3 passed") }, 0.0, false, (0, 0)),
        ] {
            let score = grader().score_of_console(&run);
            assert_eq!((score.value, score.passed), (value, passed), "{guarantee}");
            let detail = |name: &str| score.details[name].as_u64().unwrap();
            assert_eq!((detail("tests_passed"), detail("tests_total")), counts, "{guarantee}");
            assert_eq!(detail("returncode"), u64::from(run.returncode), "{guarantee}");
        }
    }

    #[test]
    fn reports_count_whatever_the_console_and_the_exit_code_say() {
        let counted = CountedTests { passed: 1, failed: 1 };
        let unusable = vec![("b.xml".to_owned(), "it is cut off".to_owned())];
        let reports = ReadReports { counted, used: vec!["a.xml".to_owned()], unusable };
        let score = grader().score_of_reports(&run(1, "9 passed"), &reports);
        assert!((score.value - 0.5).abs() < 1e-9);
        assert_eq!(score.details["reports"], json!(["a.xml"]));
        assert_eq!(
            score.details["unusable"],
            json!([{"path": "b.xml", "reason": "it is cut off"}])
        );
        let none = grader().score_of_reports(&run(0, "9 passed"), &ReadReports::default());
        assert_eq!((none.value, none.passed), (0.0, false));
        let green = CountedTests { passed: 2, failed: 0 };
        let reports = ReadReports { counted: green, ..ReadReports::default() };
        assert!(grader().score_of_reports(&run(1, ""), &reports).passed);
    }
}
