//! What `result.json` says of a Cell.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::case::cell::CellDescription;
use crate::case::file::CaseFinding;
use crate::case::grade::GraderScore;
use crate::case::harness::AgentTokens;

/// What a Cell has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellStatus {
    /// It has to be run.
    Pending,
    /// It is being run, if a process holds the lock of its run.
    Running,
    /// It is graded.
    Done,
    /// It cannot be tried, and its Case allows that.
    Skipped,
    /// Something other than the agent failed.
    Failed,
}

impl CellStatus {
    /// The word in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }

    /// Whether `resume` leaves the Cell as it is.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Skipped)
    }
}

/// The score of one grader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreEntry {
    /// The grader.
    pub grader: String,
    /// From 0 to 1; none if the grader was skipped.
    pub value: Option<f64>,
    /// Whether it passed; none if the grader was skipped.
    pub passed: Option<bool>,
    /// Its weight in the mean.
    pub weight: f64,
    /// Whether it decides alone.
    pub gate: bool,
    /// Whether the grader did not grade.
    pub skipped: bool,
    /// The same in words.
    pub explanation: String,
    /// What the grader knows besides.
    pub details: Map<String, Value>,
}

impl From<GraderScore> for ScoreEntry {
    fn from(score: GraderScore) -> Self {
        let is_judged = !score.skipped;
        Self {
            grader: score.grader,
            value: is_judged.then_some(score.value),
            passed: is_judged.then_some(score.passed),
            weight: score.weight,
            gate: score.gate,
            skipped: score.skipped,
            explanation: score.explanation,
            details: score.details,
        }
    }
}

/// How the agent ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentEntry {
    /// A word of `X-Run-Outcome`.
    pub outcome: String,
    /// Its exit code, if it exited.
    pub exit_code: Option<u8>,
    /// How long it ran, milliseconds.
    pub wall_ms: Option<u64>,
    /// The files whose changes were not graded.
    pub protected: Vec<String>,
    /// What its model has read and written, if that is known.
    pub tokens: Option<AgentTokens>,
    /// What that cost, dollars, if the prices are known.
    pub cost_usd: Option<f64>,
}

/// How the environment was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionEntry {
    /// The kind of the environment.
    pub kind: String,
    /// The key of an environment that Cells share.
    pub key: Option<String>,
    /// Whether it was made before, for another Cell.
    pub shared: bool,
    /// How long it took, milliseconds.
    pub wall_ms: Option<u64>,
}

/// What ran the commands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutorEntry {
    /// Which executor it was.
    pub kind: String,
    /// The controls that were enforced, each with its mechanism.
    pub enforced: Value,
    /// The controls that were not, each as `name: reason`.
    pub not_enforced: Vec<String>,
}

impl ExecutorEntry {
    /// What the executor says of itself.
    pub fn of(description: &CellDescription) -> Self {
        Self {
            kind: description.kind.word().to_owned(),
            // A structure of words is always a value.
            enforced: serde_json::to_value(&description.enforced).unwrap_or(Value::Null),
            not_enforced: description.not_enforced.clone(),
        }
    }
}

/// What may surprise the author of the Case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellWarning {
    /// The key of the Case, such as `environment.share`.
    pub path: String,
    /// A word of a warning of `case validate`.
    pub code: String,
    /// The same in words.
    pub message: String,
}

impl CellWarning {
    /// The same as `finding`.
    pub fn of(finding: &CaseFinding) -> Self {
        let code = serde_json::to_value(finding.code).ok();
        let code = code.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { path: finding.path.clone(), code, message: finding.message.clone() }
    }
}

/// Why a Cell failed, or was graded 0 without grading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellFault {
    /// Such as `provision.failed`.
    pub code: String,
    /// The step of the trial.
    pub step: String,
    /// The same in words.
    pub message: String,
    /// The end of what the command wrote, if one failed.
    pub tail: Option<String>,
}

/// When a Cell ran, and how long its steps took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellTiming {
    /// When the attempt began; set by the scheduler.
    pub started_at: Option<String>,
    /// When it ended; set by the scheduler.
    pub finished_at: Option<String>,
    /// How long it took, milliseconds; set by the scheduler.
    pub wall_ms: Option<u64>,
    /// How long each step of the trial took, milliseconds.
    pub steps_ms: BTreeMap<String, u64>,
}

/// How one attempt at a Cell ended, keys in the order of `result.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellEnd {
    /// What the Cell has come to.
    pub status: CellStatus,
    /// The score of the whole, if it is graded.
    pub overall_score: Option<f64>,
    /// Whether that passes, if it is graded.
    pub overall_passed: Option<bool>,
    /// The scores of the graders, in the order of the Case.
    pub scores: Vec<ScoreEntry>,
    /// How the agent ended, if it ran.
    pub agent: Option<AgentEntry>,
    /// How the environment was made, if there is one.
    pub provision: Option<ProvisionEntry>,
    /// What ran the commands, if it was started.
    pub executor: Option<ExecutorEntry>,
    /// What may surprise the author of the Case.
    pub warnings: Vec<CellWarning>,
    /// Why it failed, or was graded 0 without grading.
    pub error: Option<CellFault>,
    /// Why it was skipped.
    pub skipped_reason: Option<String>,
    /// When it ran, and how long its steps took.
    pub timing: CellTiming,
}

impl CellEnd {
    /// An end with nothing but its status. That of an attempt that was stopped early is `pending`.
    pub fn of(status: CellStatus) -> Self {
        Self {
            status,
            overall_score: None,
            overall_passed: None,
            scores: Vec::new(),
            agent: None,
            provision: None,
            executor: None,
            warnings: Vec::new(),
            error: None,
            skipped_reason: None,
            timing: CellTiming::default(),
        }
    }

    /// The end of a Cell that failed.
    pub fn failed(fault: CellFault) -> Self {
        Self { error: Some(fault), ..Self::of(CellStatus::Failed) }
    }
}
