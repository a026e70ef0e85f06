//! The grade of all tests: how many of them passed (pure).

use serde_json::{Map, Value, json};

use super::channel::TestEnd;
use super::report::{RanTests, RunnerReport};
use cofferdam_core::weakened::{self, Wall};

/// Failed tests that a grade names.
const NAMED_TESTS_MAX: usize = 20;

/// What a grader asks of its tests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PytestWanted {
    /// How many tests there have to be, if that is said.
    pub expect_total: Option<i64>,
    /// The fraction that passes.
    pub pass_threshold: f64,
}

/// What a grader says.
#[derive(Debug, Clone, PartialEq)]
pub struct PytestGrade {
    /// From 0 to 1, not rounded.
    pub value: f64,
    /// Whether it passes.
    pub passed: bool,
    /// Why, in words.
    pub explanation: String,
    /// `tests_passed`, `tests_total`, `failed` (names), and `forged` for a report that is not to be trusted.
    pub details: Map<String, Value>,
}

impl PytestGrade {
    /// The grade of `passed` tests of `passed` and `failed` ones.
    pub(super) fn of(passed: usize, failed: &[&str]) -> Self {
        let total = passed + failed.len();
        let named: Vec<&&str> = failed.iter().take(NAMED_TESTS_MAX).collect();
        let details = json!({"tests_passed": passed, "tests_total": total, "failed": named});
        Self {
            value: if total == 0 { 0.0 } else { amount(passed) / amount(total) },
            passed: false,
            explanation: format!("{passed} of {total} tests passed"),
            details: details.as_object().cloned().unwrap_or_default(),
        }
    }

    /// The grade 0 for a report without outcomes; none if it has some.
    pub(super) fn without_tests(report: &RunnerReport) -> Option<Self> {
        let mut grade = Self::of(0, &[]);
        match report {
            RunnerReport::Ran(_) => return None,
            RunnerReport::Unusable(why) => grade.explanation.clone_from(why),
            RunnerReport::Forged(why) => {
                grade.explanation = format!("forged: {why}");
                grade.details.insert("forged".to_owned(), Value::Bool(true));
            }
        }
        Some(grade)
    }
}

/// Grades all tests of a run. Those that are skipped or expected to fail by a mark leave the total; each other one
/// that did not pass has failed, also if it did not run.
pub fn grade_pytest(report: &RunnerReport, wanted: PytestWanted) -> PytestGrade {
    let RunnerReport::Ran(ran) = report else {
        return PytestGrade::without_tests(report).unwrap_or_else(|| PytestGrade::of(0, &[]));
    };
    let passed = ran.tests.iter().filter(|test| test.end == Some(TestEnd::Passed)).count();
    let failed: Vec<&str> = failed(ran).collect();
    let mut grade = PytestGrade::of(passed, &failed);
    let total = passed + failed.len();
    if let Some(expected) = wanted.expect_total
        && usize::try_from(expected) != Ok(total)
    {
        grade.value = 0.0;
        grade.explanation = format!("{total} tests, but {expected} are expected");
    } else {
        grade.passed = total > 0 && grade.value >= wanted.pass_threshold;
    }
    grade
}

/// The names of what failed.
fn failed(ran: &RanTests) -> impl Iterator<Item = &str> {
    let has_failed = |end: Option<TestEnd>| match end {
        Some(end) => end == TestEnd::Failed,
        None => !weakened::lacks(Wall::Counted),
    };
    let tests = ran.tests.iter().filter(move |test| has_failed(test.end));
    let is_known = |file: &str| {
        let ids = ran.tests.iter().flat_map(|test| [&test.id, &test.local_id]);
        ids.chain(&ran.broken).any(|id| is_of(id, file))
    };
    let silent = ran.named.iter().filter(move |file| !is_known(file));
    tests.map(|test| test.id.as_str()).chain(ran.broken.iter().chain(silent).map(String::as_str))
}

/// Whether the id is that of `file`, or of something in it.
fn is_of(id: &str, file: &str) -> bool {
    id.strip_prefix(file).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// A count as a number to divide.
fn amount(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::ran;
    use super::*;

    const ALL: PytestWanted = PytestWanted { expect_total: None, pass_threshold: 1.0 };

    fn graded(ran: RanTests, wanted: PytestWanted) -> (f64, bool, Value, Value) {
        let grade = grade_pytest(&RunnerReport::Ran(ran), wanted);
        let detail = |name: &str| grade.details[name].clone();
        (grade.value, grade.passed, detail("tests_passed"), detail("tests_total"))
    }

    #[test]
    fn the_value_is_the_fraction_that_passed() {
        use TestEnd::{Failed, Passed, Skipped, XFailed};
        for (ends, wanted) in [
            (&[Some(Passed), Some(Passed)][..], (1.0, true, 2, 2)),
            (&[Some(Passed), Some(Failed)], (0.5, false, 1, 2)),
            (&[Some(Passed), None], (0.5, false, 1, 2)),
            (&[Some(Passed), Some(Skipped), Some(XFailed)], (1.0, true, 1, 1)),
            (&[Some(Skipped)], (0.0, false, 0, 0)),
            (&[None, None], (0.0, false, 0, 2)),
            (&[], (0.0, false, 0, 0)),
        ] {
            let named: Vec<_> = ends.iter().map(|end| ("a", *end)).collect();
            let (value, passed, count, total) = wanted;
            let wanted = (value, passed, json!(count), json!(total));
            assert_eq!(graded(ran(&named), ALL), wanted, "{ends:?}");
        }
    }

    #[test]
    fn what_could_not_be_collected_has_failed() {
        let mut tests = ran(&[("a", Some(TestEnd::Passed))]);
        tests.broken.push("u.py".to_owned());
        tests.named = ["t.py", "u.py", "v.py"].map(str::to_owned).into();
        let grade = grade_pytest(&RunnerReport::Ran(tests), ALL);
        assert_eq!(grade.details["failed"], json!(["u.py", "v.py"]));
        assert_eq!((grade.value, grade.passed), (1.0 / 3.0, false));
    }

    #[test]
    fn another_total_than_expected_is_worth_nothing() {
        let two = || ran(&[("a", Some(TestEnd::Passed)), ("b", Some(TestEnd::Passed))]);
        let expected = |total| PytestWanted { expect_total: Some(total), ..ALL };
        assert_eq!(graded(two(), expected(2)).0, 1.0);
        for total in [3, 1, 0, -1] {
            assert_eq!(
                (graded(two(), expected(total)).0, graded(two(), expected(total)).1),
                (0.0, false)
            );
        }
    }

    #[test]
    fn a_threshold_passes_a_part_but_never_nothing() {
        let half = || ran(&[("a", Some(TestEnd::Passed)), ("b", None)]);
        let at = |pass_threshold| PytestWanted { pass_threshold, ..ALL };
        assert!(graded(half(), at(0.5)).1);
        assert!(!graded(half(), at(0.51)).1);
        assert!(!graded(RanTests::default(), at(0.0)).1);
    }

    #[test]
    fn a_forged_report_is_worth_nothing_and_says_so() {
        let grade = grade_pytest(&RunnerReport::Forged("why".to_owned()), ALL);
        assert_eq!((grade.value, grade.passed), (0.0, false));
        assert_eq!(
            (grade.explanation.as_str(), &grade.details["forged"]),
            ("forged: why", &json!(true))
        );
        let grade = grade_pytest(&RunnerReport::Unusable("why".to_owned()), ALL);
        assert_eq!((grade.value, grade.details.get("forged")), (0.0, None));
    }

    #[test]
    fn a_grade_names_a_bounded_number_of_tests() {
        let many: Vec<_> = (0..100).map(|_| ("a", None)).collect();
        let grade = grade_pytest(&RunnerReport::Ran(ran(&many)), ALL);
        assert_eq!(grade.details["failed"].as_array().unwrap().len(), NAMED_TESTS_MAX);
        assert_eq!(grade.details["tests_total"], json!(100));
    }
}
