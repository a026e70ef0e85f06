//! The result of an evaluation, as its JSON has it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::task::TestKind;
use cofferdam_core::egress::EgressRecord;
use cofferdam_core::{Enforced, Usage};

/// Whether an evaluation has ended, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationStatus {
    /// It waits.
    Pending,
    /// It runs.
    Running,
    /// Every test has passed.
    Completed,
    /// It ended in another way.
    Failed,
    /// It was cancelled, or its time was over.
    Cancelled,
}

/// Where an evaluation is, or has ended. Only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationStep {
    /// It waits.
    Queued,
    /// The task's archive is downloaded.
    DownloadingTask,
    /// The base is made.
    CloningRepo,
    /// What the repository needs is installed.
    InstallingDeps,
    /// The agent works.
    RunningAgent,
    /// The result is compared and tested.
    RunningTests,
    /// Removing the remains.
    Cleanup,
    /// Tests were graded.
    Done,
}

impl EvaluationStep {
    /// Its word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::DownloadingTask => "downloading_task",
            Self::CloningRepo => "cloning_repo",
            Self::InstallingDeps => "installing_deps",
            Self::RunningAgent => "running_agent",
            Self::RunningTests => "running_tests",
            Self::Cleanup => "cleanup",
            Self::Done => "done",
        }
    }
}

/// What an evaluation says about a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationVerdict {
    /// Every test passes.
    Resolved,
    /// Some tests of the task's change pass, and nothing else is broken.
    Partial,
    /// Any other result.
    Unresolved,
    /// There is no test.
    NoTests,
    /// A fault that is not the agent's.
    InfraError,
    /// A time was over.
    TimedOut,
    /// It was cancelled.
    Cancelled,
}

impl EvaluationVerdict {
    /// Every verdict, in the order of lists and metrics.
    pub const ALL: [Self; 7] = [
        Self::Resolved,
        Self::Partial,
        Self::Unresolved,
        Self::NoTests,
        Self::InfraError,
        Self::TimedOut,
        Self::Cancelled,
    ];

    /// Its word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Resolved => "resolved",
            Self::Partial => "partial",
            Self::Unresolved => "unresolved",
            Self::NoTests => "no_tests",
            Self::InfraError => "infra_error",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// `verdict`, `status` and `passed` of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement {
    /// What the evaluation says about the patch.
    pub verdict: EvaluationVerdict,
    /// How it ended.
    pub status: EvaluationStatus,
    /// Whether the tests have passed; `None` if that is not known.
    pub passed: Option<bool>,
}

/// Why an evaluation ended before its tests were graded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EvaluationFailure {
    /// For example `repo.clone_failed`.
    pub code: &'static str,
    /// Where it happened.
    pub step: EvaluationStep,
    /// The limit that was exceeded.
    pub limit: Option<&'static str>,
    /// What happened, for people.
    pub message: String,
    /// Facts for programs; an object.
    pub details: Value,
}

/// One test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestResult {
    /// Its name.
    pub name: String,
    /// What its failure says.
    pub kind: TestKind,
    /// Whether it exited with 0.
    pub passed: bool,
    /// Its exit code; -1 if it did not exit.
    pub exit_code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The limit that ended it.
    pub limit: Option<&'static str>,
    /// What it wrote to stdout and stderr.
    pub output: String,
    /// Whether it wrote more than that.
    pub truncated: bool,
    /// How long it ran, milliseconds.
    pub duration_ms: u64,
}

/// How many tests of a kind have passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TestTally {
    /// Those that have passed.
    pub passed: usize,
    /// All of them.
    pub total: usize,
}

/// How the agent ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentEnd {
    /// Its exit code; `None` if it did not exit.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The limit that ended it.
    pub limit: Option<&'static str>,
    /// Whether it wrote more than is kept.
    pub truncated: bool,
    /// What it used.
    pub usage: Usage,
}

/// What is known of a patch besides its text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatchFacts {
    /// Its size, bytes.
    pub bytes: u64,
    /// Its SHA-256, hexadecimal.
    pub sha256: String,
    /// How many files it changes.
    pub files: usize,
    /// How `agent_patch` holds it: `utf-8` or `base64`.
    pub encoding: &'static str,
    /// Paths that tests get as the base has them.
    pub withheld: Vec<String>,
    /// Paths that a patch cannot have.
    pub omitted: Vec<OmittedPath>,
}

/// A path that a patch cannot have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OmittedPath {
    /// Relative to the repository's root, lossy.
    pub path: String,
    /// Why: `fifo`, `socket`, `device`, `name` or `path`.
    pub reason: &'static str,
}

/// The task, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TaskFacts {
    /// Where it came from.
    pub url: Option<String>,
    /// The SHA-256 of its archive.
    pub sha256: Option<String>,
    /// Where its repository came from.
    pub repo: Option<String>,
    /// The commit that the agent started from.
    pub base_commit: Option<String>,
    /// The programming language.
    pub language: Option<String>,
    /// What was ignored in it.
    pub warnings: Vec<String>,
}

/// One step that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PhaseEntry {
    /// The step.
    pub step: EvaluationStep,
    /// How long it took, milliseconds.
    pub duration_ms: u64,
    /// Whether its result was in a cache.
    pub cached: bool,
    /// The limit that ended it.
    pub limit: Option<&'static str>,
}

/// An evaluation. Keys are in the order of the contract; all of them are always there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EvaluationResult {
    /// A UUID, version 4.
    pub eval_id: String,
    /// Whether it has ended, and how.
    pub status: EvaluationStatus,
    /// Where it is, or has ended.
    pub step: EvaluationStep,
    /// Whether the tests have passed; `None` if that is not known.
    pub passed: Option<bool>,
    /// What it says about the patch; `None` while it runs.
    pub verdict: Option<EvaluationVerdict>,
    /// Why it ended before its tests were graded, in words.
    pub error: Option<String>,
    /// The same for programs.
    pub failure: Option<EvaluationFailure>,
    /// From its start to its end, milliseconds.
    pub duration_ms: u64,
    /// What the agent wrote to stdout and stderr.
    pub agent_output: String,
    /// What the tests wrote, a block for each.
    pub test_output: String,
    /// The number that the task's test wrote, from 0 to 1.
    pub reward: Option<f64>,
    /// The labels of the request.
    pub labels: BTreeMap<String, String>,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub started_at: Option<String>,
    /// RFC 3339.
    pub finished_at: Option<String>,
    /// The tests in their order.
    pub test_results: Vec<TestResult>,
    /// The tests that fail without a solution.
    pub fail_to_pass: TestTally,
    /// The tests that pass without one too.
    pub pass_to_pass: TestTally,
    /// How the agent ended; `None` if none ran.
    pub agent: Option<AgentEnd>,
    /// The patch, if there is one.
    pub agent_patch: Option<String>,
    /// What is known of the patch.
    pub patch: Option<PatchFacts>,
    /// The task.
    pub task: TaskFacts,
    /// The steps in their order.
    pub phases: Vec<PhaseEntry>,
    /// What the sandboxes asked for.
    pub egress: Vec<EgressRecord>,
    /// The controls that were enforced.
    pub enforced: Option<Enforced>,
    /// Those that the host lacks.
    pub not_enforced: Vec<String>,
}

impl EvaluationResult {
    /// An evaluation that waits.
    pub fn pending(eval_id: String, created_at: String) -> Self {
        Self {
            eval_id,
            status: EvaluationStatus::Pending,
            step: EvaluationStep::Queued,
            passed: None,
            verdict: None,
            error: None,
            failure: None,
            duration_ms: 0,
            agent_output: String::new(),
            test_output: String::new(),
            reward: None,
            labels: BTreeMap::new(),
            created_at,
            started_at: None,
            finished_at: None,
            test_results: Vec::new(),
            fail_to_pass: TestTally::default(),
            pass_to_pass: TestTally::default(),
            agent: None,
            agent_patch: None,
            patch: None,
            task: TaskFacts::default(),
            phases: Vec::new(),
            egress: Vec::new(),
            enforced: None,
            not_enforced: Vec::new(),
        }
    }

    /// Adds a test that has ended, which counts at once: an evaluation that is cancelled keeps what it has.
    pub fn add_test(&mut self, test: TestResult) {
        let tally = match test.kind {
            TestKind::FailToPass => Some(&mut self.fail_to_pass),
            TestKind::PassToPass => Some(&mut self.pass_to_pass),
            TestKind::Other => None,
        };
        if let Some(tally) = tally {
            tally.total += 1;
            tally.passed += usize::from(test.passed);
        }
        self.test_results.push(test);
    }

    /// Ends it as `judgement` says.
    pub fn conclude(&mut self, judgement: Judgement) {
        let Judgement { verdict, status, passed } = judgement;
        (self.verdict, self.status, self.passed) = (Some(verdict), status, passed);
    }

    /// Ends it with `failure`.
    pub fn fail(&mut self, failure: EvaluationFailure) {
        self.error = Some(format!("{}: {}", failure.step.word(), failure.message));
        self.failure = Some(failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_there_in_the_order_of_the_contract() {
        let result = EvaluationResult::pending("id".to_owned(), "now".to_owned());
        let text = serde_json::to_string(&result).unwrap();
        let mut rest = text.as_str();
        for key in "eval_id status step passed verdict error failure duration_ms agent_output \
                    test_output reward labels created_at started_at finished_at test_results \
                    fail_to_pass pass_to_pass agent agent_patch patch task phases egress enforced \
                    not_enforced"
            .split_whitespace()
        {
            let at = rest.find(&format!("\"{key}\":"));
            rest = &rest[at.unwrap_or_else(|| panic!("{key} is missing or too early: {text}"))..];
        }
    }
}
