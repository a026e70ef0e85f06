//! How evaluations end before their tests are graded.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::report::RewardError;
use crate::evaluation::download::DownloadError;
use crate::evaluation::patch::PatchError;
use crate::evaluation::repository::RepositoryError;
use crate::evaluation::result::{EvaluationFailure, EvaluationResult, EvaluationStep};
use crate::evaluation::task::TaskError;
use crate::evaluation::verdict::{EvaluationEnd, judge};
use cofferdam_core::{LimitKind, NotStarted, SetupFailure};

/// How an evaluation ended before its tests were graded.
#[derive(Debug)]
pub struct EarlyEnd {
    /// What it is judged by.
    pub end: EvaluationEnd<'static>,
    /// Why.
    pub failure: EvaluationFailure,
}

impl EarlyEnd {
    /// Ends `result` so.
    pub fn apply_to(self, result: &mut EvaluationResult) {
        result.step = self.failure.step;
        result.conclude(judge(self.end));
        result.fail(self.failure);
    }

    /// The task cannot be used.
    pub fn of_task(error: &TaskError) -> Self {
        let end = match error {
            TaskError::NoTests => EvaluationEnd::NoTests,
            _ => EvaluationEnd::Broken,
        };
        let failure = EvaluationFailure {
            limit: error.limit(),
            details: error.details(),
            ..failure(error.code(), EvaluationStep::DownloadingTask, error.to_string())
        };
        Self { end, failure }
    }

    /// The archive of the task cannot be had.
    pub fn of_download(error: &DownloadError) -> Self {
        let step = EvaluationStep::DownloadingTask;
        match error {
            DownloadError::Cancelled => return Self::cancelled(step),
            DownloadError::Expired => return Self::expired(step),
            _ => {}
        }
        let failure = failure(error.code(), step, error.to_string());
        Self::broken(failure, error.limit(), error.details())
    }

    /// The URL of the task is malformed.
    pub fn of_wrong_url(reason: &str) -> Self {
        let words = format!("task_url: {reason}");
        let failure = failure("task.url_denied", EvaluationStep::DownloadingTask, words);
        Self { end: EvaluationEnd::Broken, failure }
    }

    /// The base cannot be made.
    pub fn of_repository(step: EvaluationStep, error: &RepositoryError) -> Self {
        match error {
            RepositoryError::Cancelled => return Self::cancelled(step),
            RepositoryError::Expired => return Self::expired(step),
            _ => {}
        }
        let failure = failure(error.code(), step, error.to_string());
        Self::broken(failure, error.limit(), error.details())
    }

    /// The patch cannot be made or applied.
    pub fn of_patch(step: EvaluationStep, error: &PatchError) -> Self {
        let (code, limit) = match error {
            PatchError::Cancelled => return Self::cancelled(step),
            PatchError::Sandbox(failure) => return Self::of_sandbox(step, failure),
            PatchError::TooLarge { .. } => ("patch.too_large", Some("patch")),
            PatchError::Rejected(_) => ("patch.rejected", None),
        };
        let failure = EvaluationFailure { limit, ..failure(code, step, error.to_string()) };
        Self { end: EvaluationEnd::AgentFailed, failure }
    }

    /// A sandbox or a file system failed.
    pub fn of_sandbox(step: EvaluationStep, error: &SetupFailure) -> Self {
        let failure = failure("sandbox.failed", step, error.to_string());
        Self { end: EvaluationEnd::Broken, failure }
    }

    /// The agent's interpreter is missing or did not start.
    pub fn not_started(error: NotStarted) -> Self {
        let step = EvaluationStep::RunningAgent;
        match error {
            NotStarted::Setup(failure) => Self::of_sandbox(step, &failure),
            NotStarted::Exec { .. } => {
                let failure = failure("agent.spawn_failed", step, error.to_string());
                Self { end: EvaluationEnd::Broken, failure }
            }
        }
    }

    /// Nothing here runs the agent's file.
    pub fn no_interpreter(file: &str) -> Self {
        let words = format!("the root file system has nothing that runs {file}");
        let failure = failure("agent.spawn_failed", EvaluationStep::RunningAgent, words);
        Self { end: EvaluationEnd::Broken, failure }
    }

    /// The task's test left no number that counts.
    pub fn of_reward(error: &RewardError) -> Self {
        let failure = EvaluationFailure {
            details: json!({ "file": error.file, "field": null }),
            ..failure("task.invalid", EvaluationStep::RunningTests, error.to_string())
        };
        Self { end: EvaluationEnd::Broken, failure }
    }

    /// A limit ended the agent, which had `wall`.
    pub fn agent_limit(kind: LimitKind, wall: Duration) -> Self {
        let (end, words) = match kind {
            LimitKind::WallTime => {
                let words =
                    format!("the agent ran longer than {} s (wall_time)", wall.as_secs_f64());
                (EvaluationEnd::AgentTimedOut, words)
            }
            LimitKind::Disk => {
                (EvaluationEnd::AgentFailed, "the agent went over its disk quota".to_owned())
            }
            kind => {
                let words = format!("the agent went over its limit {}", kind.word());
                (EvaluationEnd::AgentFailed, words)
            }
        };
        let failure = EvaluationFailure {
            limit: Some(kind.word()),
            ..failure("agent.limit_exceeded", EvaluationStep::RunningAgent, words)
        };
        Self { end, failure }
    }

    /// The evaluation's own time was over.
    pub fn expired(step: EvaluationStep) -> Self {
        let words = "the evaluation took longer than SESSION_TTL_SECS (session)".to_owned();
        let failure =
            EvaluationFailure { limit: Some("session"), ..failure("session.expired", step, words) };
        Self { end: EvaluationEnd::Expired, failure }
    }

    /// It was cancelled.
    pub fn cancelled(step: EvaluationStep) -> Self {
        let failure = failure("evaluation.cancelled", step, "cancelled".to_owned());
        Self { end: EvaluationEnd::Cancelled, failure }
    }

    /// A fault that is not the agent's.
    fn broken(
        failure: EvaluationFailure,
        limit: Option<&'static str>,
        details: Map<String, Value>,
    ) -> Self {
        let failure = EvaluationFailure { limit, details: Value::Object(details), ..failure };
        Self { end: EvaluationEnd::Broken, failure }
    }

    /// The same for the task's own solution: its fault is the task's.
    #[must_use]
    pub fn of_oracle(self) -> Self {
        match self.end {
            EvaluationEnd::AgentFailed => Self { end: EvaluationEnd::Broken, ..self },
            _ => self,
        }
    }
}

fn failure(code: &'static str, step: EvaluationStep, message: String) -> EvaluationFailure {
    EvaluationFailure { code, step, limit: None, message, details: json!({}) }
}
