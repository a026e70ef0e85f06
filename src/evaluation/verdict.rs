//! From how an evaluation ended to its verdict (pure).

use super::result::{EvaluationStatus, EvaluationVerdict, Judgement, TestResult, TestTally};
use super::task::TestKind;

/// How an evaluation ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EvaluationEnd<'tests> {
    /// The tests ran, and their exit codes decide.
    Graded(&'tests [TestResult]),
    /// The task's test wrote this number from 0 to 1.
    Rewarded(f64),
    /// A limit other than the wall time ended the agent, or its patch cannot be graded.
    AgentFailed,
    /// The agent's wall time was over.
    AgentTimedOut,
    /// The evaluation's own time was over.
    Expired,
    /// The task has no test.
    NoTests,
    /// A fault that is not the agent's.
    Broken,
    /// It was cancelled.
    Cancelled,
}

/// Judges an evaluation.
pub fn judge(end: EvaluationEnd<'_>) -> Judgement {
    use EvaluationStatus::{Cancelled, Completed, Failed};
    let (verdict, status, passed) = match end {
        EvaluationEnd::Graded(tests) => return judge_graded(verdict_of(tests)),
        EvaluationEnd::Rewarded(reward) => return judge_graded(verdict_of_reward(reward)),
        EvaluationEnd::AgentFailed => return judge_graded(EvaluationVerdict::Unresolved),
        EvaluationEnd::AgentTimedOut => (EvaluationVerdict::TimedOut, Cancelled, Some(false)),
        EvaluationEnd::Expired => (EvaluationVerdict::TimedOut, Cancelled, None),
        EvaluationEnd::NoTests => (EvaluationVerdict::NoTests, Failed, None),
        EvaluationEnd::Broken => (EvaluationVerdict::InfraError, Failed, None),
        EvaluationEnd::Cancelled => (EvaluationVerdict::Cancelled, Cancelled, None),
    };
    debug_assert!(status != Completed, "only tests complete an evaluation");
    Judgement { verdict, status, passed }
}

fn judge_graded(verdict: EvaluationVerdict) -> Judgement {
    let passed = verdict == EvaluationVerdict::Resolved;
    let status = if passed { EvaluationStatus::Completed } else { EvaluationStatus::Failed };
    Judgement { verdict, status, passed: Some(passed) }
}

fn verdict_of(tests: &[TestResult]) -> EvaluationVerdict {
    if tests.is_empty() {
        return EvaluationVerdict::NoTests;
    }
    let failed = |test: &&TestResult| !test.passed;
    if !tests.iter().any(|test| failed(&test)) {
        return EvaluationVerdict::Resolved;
    }
    let only_wanted = tests.iter().filter(failed).all(|test| test.kind == TestKind::FailToPass);
    let some_wanted = tally(tests, TestKind::FailToPass).passed > 0;
    if only_wanted && some_wanted {
        EvaluationVerdict::Partial
    } else {
        EvaluationVerdict::Unresolved
    }
}

fn verdict_of_reward(reward: f64) -> EvaluationVerdict {
    if reward >= 1.0 {
        EvaluationVerdict::Resolved
    } else if reward > 0.0 {
        EvaluationVerdict::Partial
    } else {
        EvaluationVerdict::Unresolved
    }
}

/// How many of the `tests` of a kind have passed.
pub fn tally(tests: &[TestResult], kind: TestKind) -> TestTally {
    let of_kind = || tests.iter().filter(|test| test.kind == kind);
    TestTally { passed: of_kind().filter(|test| test.passed).count(), total: of_kind().count() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests(marks: &str) -> Vec<TestResult> {
        let test = |mark: char| TestResult {
            name: mark.to_string(),
            kind: match mark.to_ascii_lowercase() {
                'f' => TestKind::FailToPass,
                'p' => TestKind::PassToPass,
                _ => TestKind::Other,
            },
            passed: mark.is_ascii_uppercase(),
            exit_code: i32::from(mark.is_ascii_lowercase()),
            signal: None,
            limit: None,
            output: String::new(),
            truncated: false,
            duration_ms: 0,
        };
        marks.chars().map(test).collect()
    }

    #[test]
    fn the_tests_decide_between_resolved_partial_and_unresolved() {
        use EvaluationVerdict::{Partial, Resolved, Unresolved};
        // A capital letter is a test that has passed: of fail_to_pass, pass_to_pass or other.
        for (marks, verdict) in [
            ("F", Resolved),
            ("FFPPO", Resolved),
            ("P", Resolved),
            ("f", Unresolved),
            ("ff", Unresolved),
            ("Ff", Partial),
            ("FfPO", Partial),
            ("ffP", Unresolved),
            ("Fp", Unresolved),
            ("Ffp", Unresolved),
            ("Fo", Unresolved),
            ("Ffo", Unresolved),
            ("o", Unresolved),
            ("p", Unresolved),
        ] {
            let tests = tests(marks);
            let judged = judge(EvaluationEnd::Graded(&tests));
            let resolved = verdict == Resolved;
            let status =
                if resolved { EvaluationStatus::Completed } else { EvaluationStatus::Failed };
            assert_eq!(judged, Judgement { verdict, status, passed: Some(resolved) }, "{marks}");
        }
    }

    #[test]
    fn every_other_end_has_its_verdict_status_and_passed() {
        use EvaluationStatus::{Cancelled, Completed, Failed};
        for (end, verdict, status, passed) in [
            (EvaluationEnd::Rewarded(1.0), EvaluationVerdict::Resolved, Completed, Some(true)),
            (EvaluationEnd::Rewarded(0.5), EvaluationVerdict::Partial, Failed, Some(false)),
            (EvaluationEnd::Rewarded(0.0), EvaluationVerdict::Unresolved, Failed, Some(false)),
            (EvaluationEnd::AgentFailed, EvaluationVerdict::Unresolved, Failed, Some(false)),
            (EvaluationEnd::NoTests, EvaluationVerdict::NoTests, Failed, None),
            (EvaluationEnd::Broken, EvaluationVerdict::InfraError, Failed, None),
            (EvaluationEnd::AgentTimedOut, EvaluationVerdict::TimedOut, Cancelled, Some(false)),
            (EvaluationEnd::Expired, EvaluationVerdict::TimedOut, Cancelled, None),
            (EvaluationEnd::Cancelled, EvaluationVerdict::Cancelled, Cancelled, None),
        ] {
            assert_eq!(judge(end), Judgement { verdict, status, passed }, "{end:?}");
        }
    }

    #[test]
    fn tests_are_counted_by_kind() {
        let tests = tests("FfPOo");
        assert_eq!(tally(&tests, TestKind::FailToPass), TestTally { passed: 1, total: 2 });
        assert_eq!(tally(&tests, TestKind::PassToPass), TestTally { passed: 1, total: 1 });
    }
}
