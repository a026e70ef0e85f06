//! Results that the store could not take: kept in memory, served to clients, written later.
//!
//! While there is one, no job begins and no job is accepted. Their number is therefore limited to
//! the jobs that were running or were canceled in the queue, each of at most its
//! `limits.record_bytes`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::job::runner::Unstored;
use crate::store::JobRecord;
use cofferdam_core::job::{JobId, RunJobResult};

/// How long to wait after a failure before the first retry. The wait doubles with each retry.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// The longest wait between two retries.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// The results that are not in the store, by job.
#[derive(Debug)]
pub struct UnwrittenResults(Mutex<PendingResults>);

#[derive(Debug)]
struct PendingResults {
    results: BTreeMap<JobId, Arc<PendingResult>>,
    wait: Duration,
    next_at: Instant,
}

#[derive(Debug)]
struct PendingResult {
    result: RunJobResult,
    record: Mutex<JobRecord>,
}

impl Default for UnwrittenResults {
    fn default() -> Self {
        let (wait, next_at) = (RETRY_FIRST, Instant::now());
        Self(Mutex::new(PendingResults { results: BTreeMap::new(), wait, next_at }))
    }
}

impl UnwrittenResults {
    fn kept(&self) -> MutexGuard<'_, PendingResults> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `result`, unless a later attempt cannot succeed either.
    pub fn keep(&self, result: &RunJobResult, unstored: Unstored) {
        let Unstored { error, record } = unstored;
        let job = result.job_id.as_str();
        if !error.may_pass() {
            log::error!(job, reason = error.to_string(); "job's result lost");
            return;
        }
        log::error!(job, reason = error.to_string(); "job's result not written; it is kept in memory");
        let pending = PendingResult { result: result.clone(), record: Mutex::new(record) };
        let mut kept = self.kept();
        if kept.results.is_empty() {
            kept.wait = RETRY_FIRST;
            kept.next_at = Instant::now() + RETRY_FIRST;
        }
        kept.results.insert(result.job_id.clone(), Arc::new(pending));
    }

    /// Whether every result is in the store.
    pub fn is_empty(&self) -> bool {
        self.kept().results.is_empty()
    }

    /// The unwritten result of a job.
    pub fn get(&self, id: &JobId) -> Option<RunJobResult> {
        let pending = self.kept().results.get(id).map(Arc::clone)?;
        Some(pending.result.clone())
    }

    /// How long until the next retry is due; nothing if no result is unwritten.
    pub fn due_in(&self) -> Option<Duration> {
        let kept = self.kept();
        let left = kept.next_at.saturating_duration_since(Instant::now());
        (!kept.results.is_empty()).then_some(left)
    }

    /// Writes the results, if a retry is due, until one fails again. Returns whether all have been
    /// written.
    pub fn retry(&self) -> bool {
        if self.due_in().is_none_or(|left| !left.is_zero()) {
            return false;
        }
        let all: Vec<Arc<PendingResult>> = self.kept().results.values().map(Arc::clone).collect();
        for pending in all {
            let id = &pending.result.job_id;
            let mut record = pending.record.lock().unwrap_or_else(PoisonError::into_inner);
            match record.finish(&pending.result) {
                Ok(()) => log::info!(job = id.as_str(); "job's result written"),
                Err(error) if error.may_pass() => {
                    let mut kept = self.kept();
                    kept.wait = (kept.wait * 2).min(RETRY_MAX);
                    kept.next_at = Instant::now() + kept.wait;
                    return false;
                }
                Err(error) => {
                    log::error!(job = id.as_str(), reason = error.to_string(); "job's result lost");
                }
            }
            // After the write: a reader that misses the result here finds it in the store.
            self.kept().results.remove(id);
        }
        self.is_empty()
    }

    /// Retries a last time when the service ends, and logs the results that are lost.
    pub fn give_up(&self) {
        self.kept().next_at = Instant::now();
        self.retry();
        for PendingResult { result, .. } in self.kept().results.values().map(AsRef::as_ref) {
            log::error!(
                job = result.job_id.as_str(),
                status = result.status.word(),
                exit_code = result.exit_code;
                "job's result lost: the service ends and the store cannot be written"
            );
        }
    }
}
