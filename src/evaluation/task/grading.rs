//! What decides a task's tests.

use serde::Serialize;

/// What decides whether a test has passed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Grading {
    /// Each test's exit code.
    #[default]
    ExitCodes,
    /// The file that the only test writes, `/logs/verifier/reward.txt` or `.json`: a number from 0 to 1.
    Reward,
    /// A JUnit file that the only test writes.
    Junit(JunitGrading),
}

/// How ids of tests are graded by a JUnit file, as for tasks converted from SWE-bench.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JunitGrading {
    /// The name of the task in its data set.
    pub instance_id: String,
    /// The absolute path of the file in the test's sandbox, below `/tmp`.
    pub report: String,
    /// The ids in the order of `test_results`: those of `FAIL_TO_PASS`, then those of `PASS_TO_PASS`.
    pub ids: Vec<GradedId>,
}

/// An id of a test, as pytest writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradedId {
    /// For example `tests/test_a.py::TestA::test_b[1]`.
    pub id: String,
    /// A skipped test fails as `FailToPass`, and holds as `PassToPass`; an absent one fails; one that fails as
    /// its mark `xfail` expects passes.
    pub kind: TestKind,
}

/// What a test's failure says about a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TestKind {
    /// It fails without a solution.
    FailToPass,
    /// It passes without a solution too.
    PassToPass,
    /// Neither is said.
    Other,
}

impl TestKind {
    /// The kind that the last component of `name` begins with.
    pub fn of_name(name: &str) -> Self {
        let base = name.rsplit('/').next().unwrap_or_default();
        if base.starts_with("fail_to_pass") {
            Self::FailToPass
        } else if base.starts_with("pass_to_pass") {
            Self::PassToPass
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_name_says_the_kind() {
        for (name, kind) in [
            ("fail_to_pass_1.sh", TestKind::FailToPass),
            ("sub/pass_to_pass.sh", TestKind::PassToPass),
            ("fail_to_pass/x.sh", TestKind::Other),
            ("checks.txt:1", TestKind::Other),
            ("test_fail_to_pass.sh", TestKind::Other),
        ] {
            assert_eq!(TestKind::of_name(name), kind, "{name}");
        }
    }
}
