//! The state of the service.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::evaluation::result::{EvaluationFailure, EvaluationResult, EvaluationStep};
use crate::evaluation::service::batch::BatchFiles;
use crate::evaluation::service::error::EvaluationsError;
use crate::evaluation::service::evaluator::Evaluator;
use crate::evaluation::service::floor::EvaluationFloor;
use crate::evaluation::service::metrics::EvaluationTally;
use crate::evaluation::service::record::{EvaluationRecords, RecordFile};
use crate::evaluation::verdict::{EvaluationEnd, judge};
use crate::store::StoreError;
use cofferdam_core::values::utc::rfc3339;

/// When a client that was refused may ask again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What holds for the service.
#[derive(Debug, Clone)]
pub struct EvaluationServiceSettings {
    /// The store; records lie in its directory `evaluations`.
    pub store_dir: PathBuf,
    /// MAX_CONCURRENT_EVALS.
    pub capacity: usize,
    /// The most evaluations of a batch.
    pub batch_max: u64,
    /// SESSION_TTL_SECS, which records outlive by the retention.
    pub session_timeout: Duration,
    /// EVAL_RETENTION.
    pub retention: Duration,
}

/// What the threads of the service share.
pub struct ServiceFloor {
    pub(super) settings: EvaluationServiceSettings,
    /// The records.
    pub records: EvaluationRecords,
    pub evaluator: Arc<dyn Evaluator>,
    floor: Mutex<EvaluationFloor>,
    /// Notified when a slot may be free, when items wait, and when the service ends.
    pub changed: Condvar,
    /// Held while a request with a key is admitted, and while files of batches are replaced.
    pub(super) admitting: Mutex<()>,
    /// Counts those that end.
    pub tally: EvaluationTally,
}

impl std::fmt::Debug for ServiceFloor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ServiceFloor").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl ServiceFloor {
    /// Over these records.
    pub fn new(
        settings: EvaluationServiceSettings,
        records: EvaluationRecords,
        evaluator: Arc<dyn Evaluator>,
    ) -> Self {
        let floor = Mutex::new(EvaluationFloor::new(settings.capacity));
        Self {
            settings,
            records,
            evaluator,
            floor,
            changed: Condvar::new(),
            admitting: Mutex::default(),
            tally: EvaluationTally::default(),
        }
    }

    /// Locks the floor.
    pub fn floor(&self) -> MutexGuard<'_, EvaluationFloor> {
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn batch_files(&self) -> BatchFiles<'_> {
        BatchFiles(self.records.batches())
    }

    pub(super) fn admitting(&self) -> MutexGuard<'_, ()> {
        self.admitting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Now, as records have it.
pub(super) fn now_text() -> String {
    rfc3339(SystemTime::now())
}

/// Now, as orders have it.
pub(super) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A time of a record; the epoch if it does not parse.
pub(super) fn parse_time(text: &str) -> SystemTime {
    humantime::parse_rfc3339(text).unwrap_or(UNIX_EPOCH)
}

/// Logs a failure of the store with its paths; returns it without.
pub(super) fn store_failed(error: &StoreError) -> EvaluationsError {
    log::error!(reason = error.to_string(); "the store of evaluations failed");
    EvaluationsError::Store(error.without_paths())
}

/// Ends `result` as `end`, with a failure where it is.
pub(super) fn end_early(
    result: &mut EvaluationResult,
    end: EvaluationEnd<'static>,
    code: &'static str,
    message: &str,
) {
    let step = result.step;
    let (limit, details) = (None, json!({}));
    let message = message.to_owned();
    result.conclude(judge(end));
    result.fail(EvaluationFailure { code, step, limit, message, details });
    result.finished_at = Some(now_text());
}

/// The result of an evaluation that was cancelled while it waited.
pub(super) fn cancelled_result(record: &RecordFile, at: &str) -> EvaluationResult {
    let mut result = record.to_result();
    result.step = EvaluationStep::Queued;
    result.started_at = None;
    end_early(&mut result, EvaluationEnd::Cancelled, "evaluation.cancelled", "cancelled");
    result.finished_at = Some(at.to_owned());
    result
}
