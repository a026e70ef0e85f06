//! The API of evaluations, behind HTTP and the command line.

use std::collections::BTreeMap;
use std::fs::File;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::error::EvaluationsError;
use super::metrics::EvaluationMetrics;
use crate::evaluation::request::{EvaluatedWork, EvaluationRequest, TaskPlace};
use crate::evaluation::result::{EvaluationStatus, EvaluationVerdict};
use cofferdam_core::NetworkObject;
use cofferdam_core::job::Idempotency;
use cofferdam_core::values::deadline::Deadline;

/// The evaluations of one store. Each method acts for `owner`, the name of a token: evaluations and batches
/// of others are not found.
pub trait Evaluations: Send + Sync {
    /// Admits an evaluation, which begins at once, and returns its id.
    fn submit(
        &self,
        owner: &str,
        request: EvaluationRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<String, EvaluationsError>;
    /// Admits a batch, whose items wait on disk for a slot.
    fn submit_batch(
        &self,
        owner: &str,
        request: BatchRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<SubmittedBatch, EvaluationsError>;
    /// The result as JSON; of a live evaluation what is known so far.
    fn view(&self, owner: &str, id: &str) -> Result<String, EvaluationsError>;
    /// The patch of an evaluation that has ended.
    fn patch(&self, owner: &str, id: &str) -> Result<Vec<u8>, EvaluationsError>;
    /// The tests of an evaluation that has ended, as JUnit XML.
    fn junit(&self, owner: &str, id: &str) -> Result<String, EvaluationsError>;
    /// Follows the events of an evaluation.
    fn events(&self, owner: &str, id: &str) -> Result<EvaluationEvents, EvaluationsError>;
    /// Cancels an evaluation: it ends within a second.
    fn cancel(&self, owner: &str, id: &str) -> Result<CancelledEvaluation, EvaluationsError>;
    /// Lists evaluations, the newest first.
    fn list(
        &self,
        owner: &str,
        query: &EvaluationQuery,
    ) -> Result<EvaluationPage, EvaluationsError>;
    /// A batch as JSON.
    fn batch(&self, owner: &str, id: &str) -> Result<String, EvaluationsError>;
    /// Cancels what of a batch is live, and returns the batch as JSON.
    fn cancel_batch(&self, owner: &str, id: &str) -> Result<String, EvaluationsError>;
    /// The counters since the start.
    fn counts(&self) -> EvaluationCounts;
    /// What is counted for the metrics.
    fn metrics(&self) -> EvaluationMetrics;
    /// Refuses new evaluations from now on, and begins no item of a batch.
    fn start_draining(&self);
    /// Cancels every live evaluation; items of batches that wait stay for the next start.
    fn cancel_all(&self);
    /// Waits until no evaluation is live; false if the deadline passed first.
    fn wait_idle(&self, deadline: Deadline) -> bool;
}

/// A batch that is asked for: each agent on each task, `repeat` times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRequest {
    /// The tasks, without duplicates.
    pub tasks: Vec<BatchTask>,
    /// The agents, whose names occur once.
    pub agents: Vec<BatchAgent>,
    /// How often each agent works on each task.
    pub repeat: u64,
    /// Labels of every evaluation.
    pub labels: BTreeMap<String, String>,
}

/// A task of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchTask {
    /// Where it is.
    pub task: TaskPlace,
}

/// An agent of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchAgent {
    /// Its name in the batch.
    pub name: String,
    /// What is graded.
    pub work: EvaluatedWork,
    /// Variables that only the agent sees.
    pub agent_env: BTreeMap<String, String>,
    /// What the agent may reach; the service's default if `None`.
    pub agent_network: Option<NetworkObject>,
    /// Commands that install what the agent needs.
    pub agent_install: Vec<String>,
}

/// A batch that was admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubmittedBatch {
    /// A UUID, version 4.
    pub batch_id: String,
    /// Its evaluations.
    pub eval_ids: Vec<String>,
}

/// The answer to a cancellation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CancelledEvaluation {
    /// The evaluation.
    pub eval_id: String,
    /// Its state.
    pub status: EvaluationStatus,
    /// Whether it had ended before.
    #[serde(skip)]
    pub had_ended: bool,
}

/// The events of an evaluation: one JSON object a line, `{"id": 1, "event": "step", "data": {}}`.
#[derive(Debug)]
pub struct EvaluationEvents {
    /// The file, which grows. It stays readable after the removal of the record.
    pub file: File,
    /// How far it is. The sender is dropped when the evaluation has ended; the last value stays.
    pub progress: watch::Receiver<EventsProgress>,
}

/// How far the events of an evaluation are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventsProgress {
    /// The bytes of whole lines that can be read.
    pub bytes: u64,
    /// Whether the last event is among them.
    pub ended: bool,
}

/// Which evaluations to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvaluationQuery {
    /// Only those in this state.
    pub status: Option<EvaluationStatus>,
    /// Only those with this verdict.
    pub verdict: Option<EvaluationVerdict>,
    /// Only those with this label.
    pub label: Option<(String, String)>,
    /// How many at most.
    pub limit: usize,
    /// The end of the page before.
    pub cursor: Option<String>,
}

/// A page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvaluationPage {
    /// A JSON array, the newest first.
    pub json: String,
    /// The cursor of the next page; `None` at the end.
    pub next_cursor: Option<String>,
}

/// The counters of evaluations since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvaluationCounts {
    /// Those that run.
    pub active: u64,
    /// Those that completed.
    pub passed: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that were cancelled, or whose time was over.
    pub cancelled: u64,
    /// The time of all that ended, milliseconds.
    pub duration_ms_sum: u64,
    /// MAX_CONCURRENT_EVALS.
    pub capacity: u64,
}
