//! The service of evaluations.

use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::api::{
    BatchRequest, CancelledEvaluation, EvaluationCounts, EvaluationEvents, EvaluationPage,
    EvaluationQuery, Evaluations, SubmittedBatch,
};
use super::error::EvaluationsError;
use super::evaluator::Evaluator;
use super::floor::EvaluationFloor;
use super::metrics::EvaluationMetrics;
use super::record::EvaluationRecords;
use super::work::{EvaluationServiceSettings, ServiceFloor};
use crate::evaluation::request::EvaluationRequest;
use crate::store::StoreError;
use cofferdam_core::job::Idempotency;
use cofferdam_core::values::deadline::Deadline;

/// How long a service that is dropped waits for its evaluations.
const DROPPED_WITHIN: Duration = Duration::from_secs(5);

/// Runs evaluations and keeps their records. Dropping it ends what runs.
#[derive(Debug)]
pub struct EvaluationService {
    shared: Arc<ServiceFloor>,
    dispatcher: Option<JoinHandle<()>>,
}

impl EvaluationService {
    /// Opens the records of the store, ends what ran at the death of the last service, and goes on with
    /// batches.
    ///
    /// # Errors
    /// The store cannot be used, or another service owns it.
    pub fn open(
        settings: EvaluationServiceSettings,
        evaluator: Arc<dyn Evaluator>,
    ) -> Result<Self, StoreError> {
        let records = EvaluationRecords::open(&settings.store_dir)?;
        let path = settings.store_dir.clone();
        let shared = Arc::new(ServiceFloor::new(settings, records, evaluator));
        shared.recover()?;
        shared.remove_expired(std::time::SystemTime::now());
        let dispatching = Arc::clone(&shared);
        let named = thread::Builder::new().name("evaluations".to_owned());
        let dispatcher = named.spawn(move || dispatching.dispatch());
        let unusable = |error: std::io::Error| StoreError::Unusable {
            path,
            reason: format!("thread: {error}"),
        };
        Ok(Self { shared, dispatcher: Some(dispatcher.map_err(unusable)?) })
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &ServiceFloor {
        &self.shared
    }
}

impl Drop for EvaluationService {
    fn drop(&mut self) {
        self.start_draining();
        self.cancel_all();
        self.shared.floor().is_ending = true;
        self.shared.changed.notify_all();
        if let Some(dispatcher) = self.dispatcher.take() {
            // A panic has already been logged.
            let _ = dispatcher.join();
        }
        if self.wait_idle(Deadline::after(DROPPED_WITHIN)) {
            // A thread that has ended its evaluation may hold the state a moment longer.
            self.shared.records.release();
        } else {
            log::error!("evaluations have not ended with the service");
        }
    }
}

impl Evaluations for EvaluationService {
    fn submit(
        &self,
        owner: &str,
        request: EvaluationRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<String, EvaluationsError> {
        self.shared.admit(owner, request, idempotency.as_ref())
    }

    fn submit_batch(
        &self,
        owner: &str,
        request: BatchRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<SubmittedBatch, EvaluationsError> {
        self.shared.admit_batch(owner, request, idempotency)
    }

    fn view(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        self.shared.result_json(owner, id)
    }

    fn patch(&self, owner: &str, id: &str) -> Result<Vec<u8>, EvaluationsError> {
        self.shared.patch_of(owner, id)
    }

    fn junit(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        self.shared.junit_xml(owner, id)
    }

    fn events(&self, owner: &str, id: &str) -> Result<EvaluationEvents, EvaluationsError> {
        self.shared.follow(owner, id)
    }

    fn cancel(&self, owner: &str, id: &str) -> Result<CancelledEvaluation, EvaluationsError> {
        self.shared.cancel_one(owner, id)
    }

    fn list(
        &self,
        owner: &str,
        query: &EvaluationQuery,
    ) -> Result<EvaluationPage, EvaluationsError> {
        self.shared.floor().index.page(owner, query)
    }

    fn batch(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        self.shared.batch_json(owner, id)
    }

    fn cancel_batch(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        self.shared.cancel_items(owner, id)?;
        self.shared.batch_json(owner, id)
    }

    fn counts(&self) -> EvaluationCounts {
        let floor = self.shared.floor();
        EvaluationCounts {
            active: floor.slots.taken() as u64,
            passed: floor.passed,
            failed: floor.failed,
            cancelled: floor.cancelled,
            duration_ms_sum: floor.duration_ms_sum,
            capacity: floor.slots.capacity() as u64,
        }
    }

    fn metrics(&self) -> EvaluationMetrics {
        self.shared.tally.read().with_cache_bytes(&self.shared.evaluator.cache_bytes())
    }

    fn start_draining(&self) {
        self.shared.floor().is_draining = true;
        self.shared.changed.notify_all();
    }

    fn cancel_all(&self) {
        let mut floor = self.shared.floor();
        floor.is_draining = true;
        floor.cancels_new = true;
        floor.live.values().for_each(|live| live.cancel());
        drop(floor);
        self.shared.changed.notify_all();
    }

    fn wait_idle(&self, deadline: Deadline) -> bool {
        let floor = self.shared.floor();
        let is_busy = |floor: &mut EvaluationFloor| floor.slots.taken() > 0;
        let changed = &self.shared.changed;
        let waited = changed.wait_timeout_while(floor, deadline.remaining(), is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}
