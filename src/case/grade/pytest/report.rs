//! What a run of the runner has shown (pure).

use super::channel::{ChannelSecret, RunnerFrame, TestEnd};
use crate::case::cell::ExecResult;
use cofferdam_core::job::TextEncoding;
use cofferdam_core::weakened::{self, Wall};

/// A collected test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RanTest {
    /// Its id as pytest prints it.
    pub id: String,
    /// The same with the path from the working directory.
    pub local_id: String,
    /// How it ended; `None` if it did not run to its end.
    pub end: Option<TestEnd>,
}

/// The tests of a run whose canary failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RanTests {
    /// Every test that was collected.
    pub tests: Vec<RanTest>,
    /// What could not be collected.
    pub broken: Vec<String>,
    /// Files that were asked for and define tests.
    pub named: Vec<String>,
}

/// What is known of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerReport {
    /// The tests and their outcomes.
    Ran(RanTests),
    /// The outcomes are not to be trusted, with the reason.
    Forged(String),
    /// No test could run, with the reason.
    Unusable(String),
}

impl RunnerReport {
    /// Reads the report of a run that ended with `result`.
    pub(super) fn read(result: &ExecResult, secret: &ChannelSecret) -> Self {
        let stdout = &result.stdout;
        if stdout.truncated {
            return Self::Unusable(format!("the report has {} bytes", stdout.bytes));
        }
        let frames = match stdout.encoding {
            TextEncoding::Utf8 => secret.frames(&stdout.text),
            TextEncoding::Base64 => Err(0),
        };
        match frames {
            Ok(frames) => Self::of(frames, &end_words(result)),
            Err(number) => Self::Forged(format!("line {number} of the report is not the runner's")),
        }
    }

    /// The report in `frames` of a run that ended as `end` says.
    fn of(frames: Vec<RunnerFrame>, end: &str) -> Self {
        let mut ran = RanTests::default();
        let (mut canary, mut has_begun) = (None, false);
        for frame in frames {
            if canary.is_some() && !weakened::lacks(Wall::Framed) {
                return Self::Forged("a report follows that of the canary".to_owned());
            }
            match frame {
                RunnerFrame::Pytest(_) => has_begun = true,
                RunnerFrame::Named(files) => ran.named = files,
                RunnerFrame::Tests(tests) => {
                    let test = |(id, local_id)| RanTest { id, local_id, end: None };
                    ran.tests.extend(tests.into_iter().map(test));
                }
                RunnerFrame::Broken(id) => ran.broken.push(id),
                RunnerFrame::End(number, end) => {
                    let test = usize::try_from(number).ok().and_then(|at| ran.tests.get_mut(at));
                    match test {
                        Some(test) => test.end = Some(end),
                        None => return Self::Forged(format!("no test has the number {number}")),
                    }
                }
                RunnerFrame::Canary(end) => canary = Some(end),
                RunnerFrame::Fault(words) => return Self::Unusable(words),
            }
        }
        match canary {
            // Until then nothing of the sandbox has run.
            _ if !has_begun => Self::Unusable(format!("the runner did not begin: {end}")),
            Some(TestEnd::Failed) => Self::Ran(ran),
            _ if weakened::lacks(Wall::Canary) => Self::Ran(ran),
            None => Self::Forged(format!("the run ended before its canary: {end}")),
            Some(_) => Self::Forged("the canary did not fail".to_owned()),
        }
    }
}

/// How the runner ended.
fn end_words(result: &ExecResult) -> String {
    match (result.exit_code, result.signal) {
        (Some(code), _) => format!("{}, code {code}", result.outcome),
        (None, Some(signal)) => format!("{}, signal {signal}", result.outcome),
        (None, None) => result.outcome.to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The tests `ends` of a file `t.py`.
    pub(in super::super) fn ran(ends: &[(&str, Option<TestEnd>)]) -> RanTests {
        let test = |(name, end): &(&str, Option<TestEnd>)| {
            let id = format!("t.py::{name}");
            RanTest { local_id: id.clone(), id, end: *end }
        };
        RanTests { tests: ends.iter().map(test).collect(), ..RanTests::default() }
    }

    fn begun(frames: &[RunnerFrame]) -> RunnerReport {
        let first = [
            RunnerFrame::Pytest("8".into()),
            RunnerFrame::Tests(
                ["t.py::a", "t.py::b"].map(|id| (id.to_owned(), id.to_owned())).into(),
            ),
        ];
        RunnerReport::of(
            first.into_iter().chain(frames.iter().cloned()).collect(),
            "exited, code 0",
        )
    }

    #[test]
    fn a_run_whose_canary_failed_has_every_collected_test() {
        let frames = [
            RunnerFrame::End(1, TestEnd::Failed),
            RunnerFrame::Broken("u.py".into()),
            RunnerFrame::End(1, TestEnd::Passed),
            RunnerFrame::Canary(TestEnd::Failed),
        ];
        let wanted = RanTests {
            broken: vec!["u.py".into()],
            ..ran(&[("a", None), ("b", Some(TestEnd::Passed))])
        };
        assert_eq!(begun(&frames), RunnerReport::Ran(wanted));
    }

    #[test]
    fn a_canary_that_did_not_fail_is_a_forgery() {
        let passed = RunnerFrame::End(0, TestEnd::Passed);
        for canary in [
            None,
            Some(RunnerFrame::Canary(TestEnd::Passed)),
            Some(RunnerFrame::Canary(TestEnd::Skipped)),
            Some(RunnerFrame::Canary(TestEnd::XFailed)),
        ] {
            let frames: Vec<_> = [passed.clone()].into_iter().chain(canary).collect();
            assert!(matches!(begun(&frames), RunnerReport::Forged(_)), "{frames:?}");
        }
    }

    #[test]
    fn reports_of_what_is_not_there_are_forgeries() {
        let canary = RunnerFrame::Canary(TestEnd::Failed);
        for frames in [
            [RunnerFrame::End(2, TestEnd::Passed), canary.clone()],
            [canary.clone(), RunnerFrame::End(0, TestEnd::Passed)],
            [canary.clone(), canary.clone()],
        ] {
            assert!(matches!(begun(&frames), RunnerReport::Forged(_)), "{frames:?}");
        }
    }

    #[test]
    fn a_run_without_tests_says_why() {
        let words = "exited, code 127";
        assert_eq!(
            RunnerReport::of(Vec::new(), words),
            RunnerReport::Unusable("the runner did not begin: exited, code 127".to_owned())
        );
        let fault = RunnerFrame::Fault("no pytest".into());
        assert_eq!(
            RunnerReport::of(vec![fault], words),
            RunnerReport::Unusable("no pytest".into())
        );
    }
}
