//! The grade of tests by their ids: those that a solution mends, and those that it must not break (pure).

use super::channel::TestEnd;
use super::counts::PytestGrade;
use super::ids::WantedId;
use super::report::{RanTest, RunnerReport};

/// What the grader `swebench` says.
#[derive(Debug, Clone, PartialEq)]
pub struct SwebenchGrades {
    /// The fraction of `fail_to_pass` that passed.
    pub fixed: PytestGrade,
    /// The gate `swebench-regression`: 1 if all of `pass_to_pass` hold, else 0.
    pub regression: PytestGrade,
}

/// Grades the tests that `fail_to_pass` and `pass_to_pass` name. A test that is absent or did not run fails. One that
/// is expected to fail passes, and one that is skipped holds in `pass_to_pass`, each by its mark.
pub fn grade_swebench(
    report: &RunnerReport,
    fail_to_pass: &[String],
    pass_to_pass: &[String],
) -> SwebenchGrades {
    let mut fixed = grade(report, fail_to_pass, is_fixed);
    fixed.passed = !fail_to_pass.is_empty() && fixed.value >= 1.0;
    let mut regression = grade(report, pass_to_pass, holds);
    let is_trusted = !matches!(report, RunnerReport::Forged(_));
    regression.passed = is_trusted && (pass_to_pass.is_empty() || regression.value >= 1.0);
    regression.value = if regression.passed { 1.0 } else { 0.0 };
    SwebenchGrades { fixed, regression }
}

fn grade(report: &RunnerReport, ids: &[String], fits: fn(Option<TestEnd>) -> bool) -> PytestGrade {
    let tests: &[RanTest] = match report {
        RunnerReport::Ran(ran) => &ran.tests,
        RunnerReport::Forged(_) | RunnerReport::Unusable(_) => &[],
    };
    let is_good = |id: &str| {
        let meant = WantedId::new(id).tests_of(tests);
        !meant.is_empty() && meant.iter().all(|test| fits(test.end))
    };
    let failed: Vec<&str> = ids.iter().map(String::as_str).filter(|id| !is_good(id)).collect();
    let mut grade = PytestGrade::of(ids.len() - failed.len(), &failed);
    if let Some(without) = PytestGrade::without_tests(report) {
        grade.explanation = without.explanation;
        grade.details.extend(without.details.into_iter().filter(|(name, _)| name == "forged"));
    }
    grade
}

fn is_fixed(end: Option<TestEnd>) -> bool {
    matches!(end, Some(TestEnd::Passed | TestEnd::XFailed))
}

fn holds(end: Option<TestEnd>) -> bool {
    is_fixed(end) || end == Some(TestEnd::Skipped)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::ran;
    use super::*;

    fn graded(
        ends: &[(&str, Option<TestEnd>)],
        fail_to_pass: &[&str],
        pass_to_pass: &[&str],
    ) -> (f64, bool, f64, bool) {
        let ids =
            |names: &[&str]| names.iter().map(|name| format!("t.py::{name}")).collect::<Vec<_>>();
        let report = RunnerReport::Ran(ran(ends));
        let grades = grade_swebench(&report, &ids(fail_to_pass), &ids(pass_to_pass));
        let SwebenchGrades { fixed, regression } = grades;
        (fixed.value, fixed.passed, regression.value, regression.passed)
    }

    #[test]
    fn each_end_counts_by_the_list_that_names_it() {
        for (end, is_fixed, holds) in [
            (Some(TestEnd::Passed), 1.0, 1.0),
            (Some(TestEnd::XFailed), 1.0, 1.0),
            (Some(TestEnd::Skipped), 0.0, 1.0),
            (Some(TestEnd::Failed), 0.0, 0.0),
            (None, 0.0, 0.0),
        ] {
            let (fixed, _, regression, _) = graded(&[("a", end)], &["a"], &["a"]);
            assert_eq!((fixed, regression), (is_fixed, holds), "{end:?}");
        }
    }

    #[test]
    fn the_value_is_the_fraction_that_is_fixed_and_one_broken_test_closes_the_gate() {
        let good = Some(TestEnd::Passed);
        let ends = [("a", good), ("b", good), ("c", None), ("d", good)];
        assert_eq!(graded(&ends, &["a", "b", "c"], &["d"]), (2.0 / 3.0, false, 1.0, true));
        assert_eq!(graded(&ends, &["a", "b"], &["d", "c"]), (1.0, true, 0.0, false));
        assert_eq!(graded(&ends, &["a", "absent"], &["absent"]), (0.5, false, 0.0, false));
        assert_eq!(graded(&ends, &["a"], &[]), (1.0, true, 1.0, true));
        assert_eq!(graded(&ends, &[], &[]), (0.0, false, 1.0, true));
    }

    #[test]
    fn an_open_id_needs_all_that_begin_with_it() {
        let ends = [("a[1]", Some(TestEnd::Passed)), ("a[10]", Some(TestEnd::Failed))];
        assert_eq!(graded(&ends, &["a[1"], &["a[1]"]), (0.0, false, 1.0, true));
    }

    #[test]
    fn an_id_twice_is_failed_if_it_failed_once() {
        let ends = [("a", Some(TestEnd::Passed)), ("a", Some(TestEnd::Failed))];
        assert_eq!(graded(&ends, &["a"], &["a"]), (0.0, false, 0.0, false));
    }

    #[test]
    fn a_forged_report_is_worth_nothing_even_without_ids() {
        let report = RunnerReport::Forged("why".to_owned());
        let grades = grade_swebench(&report, &["t.py::a".to_owned()], &[]);
        assert_eq!((grades.fixed.value, grades.regression.value), (0.0, 0.0));
        assert!(!grades.fixed.passed && !grades.regression.passed);
        assert_eq!(grades.fixed.explanation, "forged: why");
        assert_eq!(grades.fixed.details["tests_total"], 1);
        assert_eq!(grades.fixed.details["forged"], true);
    }
}
