//! What the threads of the service share under one lock.

mod index;
mod slots;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use index::EvaluationIndex;
pub use slots::{EvaluationSlots, ItemWait};

use super::batch::{BatchFile, Turns, WaitingBatches};
use super::live::LiveEvaluation;
use crate::evaluation::result::{EvaluationResult, EvaluationStatus};
use cofferdam_core::job::{Idempotency, Sha256};

/// How long an `Idempotency-Key` stands for its request.
const KEY_VALID_FOR: Duration = Duration::from_secs(24 * 3600);

/// What the threads of the service share.
#[derive(Debug)]
pub struct EvaluationFloor {
    /// Who may begin.
    pub slots: EvaluationSlots,
    /// Every evaluation.
    pub index: EvaluationIndex,
    /// Those that run, and those that wait and are followed.
    pub live: HashMap<String, Arc<LiveEvaluation>>,
    /// Every batch.
    pub batches: HashMap<String, OpenBatch>,
    /// Whose turn it is.
    pub turns: Turns,
    /// Keys of requests, by owner and key.
    pub keys: HashMap<(String, String), RememberedKey>,
    /// Refuses new ones.
    pub is_draining: bool,
    /// Cancels what begins.
    pub cancels_new: bool,
    /// Waits for nothing any more.
    pub is_ending: bool,
    /// Ended since the start.
    pub passed: u64,
    /// Ended since the start.
    pub failed: u64,
    /// Ended since the start.
    pub cancelled: u64,
    /// Of all that ended since the start.
    pub duration_ms_sum: u64,
}

/// A batch and which of its items wait.
#[derive(Debug)]
pub struct OpenBatch {
    /// Its file.
    pub file: BatchFile,
    /// Items that wait, in their order.
    pub waiting: VecDeque<usize>,
}

/// What a key was used for.
#[derive(Debug, Clone)]
pub struct RememberedKey {
    /// The evaluation or the batch.
    pub id: String,
    /// The digest of the request.
    pub body: Sha256,
    /// When.
    pub at: SystemTime,
}

impl EvaluationFloor {
    /// An empty one.
    pub fn new(capacity: usize) -> Self {
        Self {
            slots: EvaluationSlots::new(capacity),
            index: EvaluationIndex::default(),
            live: HashMap::new(),
            batches: HashMap::new(),
            turns: Turns::default(),
            keys: HashMap::new(),
            is_draining: false,
            cancels_new: false,
            is_ending: false,
            passed: 0,
            failed: 0,
            cancelled: 0,
            duration_ms_sum: 0,
        }
    }

    /// The use of a key that still stands for its request.
    pub fn key(&self, owner: &str, key: &str) -> Option<&RememberedKey> {
        let used = self.keys.get(&(owner.to_owned(), key.to_owned()))?;
        // If the clock was set back, the key is treated as new.
        (used.at.elapsed().unwrap_or_default() < KEY_VALID_FOR).then_some(used)
    }

    /// Notes the use of a key.
    pub fn use_key(&mut self, owner: &str, used: Option<&Idempotency>, id: &str, at: SystemTime) {
        if let Some(Idempotency { key, body }) = used {
            let used = RememberedKey { id: id.to_owned(), body: body.clone(), at };
            self.keys.insert((owner.to_owned(), key.clone()), used);
        }
    }

    /// Batches with items that wait.
    pub fn waiting(&self) -> WaitingBatches {
        let mut waiting = WaitingBatches::new();
        for batch in self.batches.values().filter(|batch| !batch.waiting.is_empty()) {
            let of_owner = waiting.entry(batch.file.owner.clone()).or_default();
            of_owner.insert(batch.file.order, batch.file.batch_id.clone());
        }
        waiting
    }

    /// Counts an evaluation that has ended.
    pub fn count(&mut self, result: &EvaluationResult) {
        let counter = match result.status {
            EvaluationStatus::Completed => &mut self.passed,
            EvaluationStatus::Cancelled => &mut self.cancelled,
            _ => &mut self.failed,
        };
        *counter += 1;
        self.duration_ms_sum = self.duration_ms_sum.saturating_add(result.duration_ms);
    }
}
