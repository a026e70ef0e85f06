//! An evaluation that runs, or waits and is followed.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::record::{EventLog, RecordFile};
use crate::evaluation::result::{EvaluationResult, EvaluationStatus};
use cofferdam_core::sync::cancel::CancelToken;

/// An evaluation that runs, or waits and is followed.
#[derive(Debug)]
pub struct LiveEvaluation {
    /// As it was admitted.
    pub record: RecordFile,
    cancel: OnceLock<CancelToken>,
    known: Mutex<EvaluationResult>,
    log: Mutex<EventLog>,
}

impl LiveEvaluation {
    /// Of that record, with its events so far.
    pub fn new(record: RecordFile, log: EventLog) -> Self {
        let known = Mutex::new(record.to_result());
        Self { record, cancel: OnceLock::new(), known, log: Mutex::new(log) }
    }

    /// Makes it one that runs, until `cancel` is raised.
    pub fn begin(&self, cancel: CancelToken) {
        let _ = self.cancel.set(cancel);
    }

    /// Whether it runs.
    pub fn runs(&self) -> bool {
        self.cancel.get().is_some()
    }

    /// What ends it.
    pub fn token(&self) -> Option<CancelToken> {
        self.cancel.get().cloned()
    }

    /// Ends it, if it runs.
    pub fn cancel(&self) {
        if let Some(cancel) = self.cancel.get() {
            cancel.cancel();
        }
    }

    /// What is known of it.
    pub fn known(&self) -> MutexGuard<'_, EvaluationResult> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its events.
    pub fn log(&self) -> MutexGuard<'_, EventLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what the evaluator knows. Steps only move forward.
    pub fn learn(&self, result: &EvaluationResult) {
        let mut known = self.known();
        let (status, step) = (known.status, known.step.max(result.step));
        let started_at = known.started_at.take().or_else(|| result.started_at.clone());
        *known = result.clone();
        self.identify(&mut known);
        (known.status, known.step, known.started_at) = (status, step, started_at);
        (known.verdict, known.passed, known.finished_at) = (None, None, None);
    }

    /// Makes `result` that of this evaluation.
    pub fn identify(&self, result: &mut EvaluationResult) {
        result.eval_id.clone_from(&self.record.eval_id);
        result.created_at.clone_from(&self.record.created_at);
        result.labels.clone_from(&self.record.labels);
        if result.task.url.is_none() {
            result.task.url = Some(self.record.task_url.clone());
        }
    }

    /// Notes that it runs since then.
    pub fn started(&self, at: &str) {
        let mut known = self.known();
        known.status = EvaluationStatus::Running;
        known.started_at = Some(at.to_owned());
    }
}
