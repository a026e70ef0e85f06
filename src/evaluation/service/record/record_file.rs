//! `record.json`: what lists and the next start need of an evaluation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::evaluation::result::{
    EvaluationResult, EvaluationStatus, EvaluationStep, EvaluationVerdict,
};
use cofferdam_core::job::Idempotency;

/// What lists and the next start need of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordFile {
    /// A UUID, version 4.
    pub eval_id: String,
    /// The name of its token.
    pub owner: String,
    /// Its place in lists: larger is newer. Unique.
    pub order: u64,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339; `None` while it waits.
    pub started_at: Option<String>,
    /// RFC 3339; `None` until it has ended.
    pub finished_at: Option<String>,
    /// Whether it has ended, and how.
    pub status: EvaluationStatus,
    /// Where it is, or has ended.
    pub step: EvaluationStep,
    /// `None` until it has ended.
    pub verdict: Option<EvaluationVerdict>,
    /// Whether the tests have passed.
    pub passed: Option<bool>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Where its task is.
    pub task_url: String,
    /// The programming language, once it is known.
    pub language: Option<String>,
    /// The batch that it is an item of.
    pub batch_id: Option<String>,
    /// The key of its request.
    pub idempotency: Option<Idempotency>,
}

impl RecordFile {
    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        !matches!(self.status, EvaluationStatus::Pending | EvaluationStatus::Running)
    }

    /// Takes over how it ended.
    pub fn end(&mut self, result: &EvaluationResult) {
        self.status = result.status;
        self.step = result.step;
        self.verdict = result.verdict;
        self.passed = result.passed;
        self.started_at.clone_from(&result.started_at);
        self.finished_at.clone_from(&result.finished_at);
        self.language.clone_from(&result.task.language);
    }

    /// What is known of it as a result.
    pub fn to_result(&self) -> EvaluationResult {
        let mut result = EvaluationResult::pending(self.eval_id.clone(), self.created_at.clone());
        result.labels.clone_from(&self.labels);
        result.started_at.clone_from(&self.started_at);
        result.task.url = Some(self.task_url.clone());
        result.task.language.clone_from(&self.language);
        result.status = self.status;
        result.step = self.step;
        result
    }
}

/// An evaluation in a list.
#[derive(Debug, Serialize)]
pub struct EvaluationLine<'a> {
    eval_id: &'a str,
    task_url: &'a str,
    language: Option<&'a str>,
    created_at: &'a str,
    status: EvaluationStatus,
    step: EvaluationStep,
    verdict: Option<EvaluationVerdict>,
    passed: Option<bool>,
}

impl<'a> EvaluationLine<'a> {
    /// The line of a record.
    pub fn of(record: &'a RecordFile) -> Self {
        Self {
            eval_id: &record.eval_id,
            task_url: &record.task_url,
            language: record.language.as_deref(),
            created_at: &record.created_at,
            status: record.status,
            step: record.step,
            verdict: record.verdict,
            passed: record.passed,
        }
    }
}
