//! A service of evaluations that opens its store late: with the first evaluation.
//!
//! A service that answers `/run` only therefore creates no directory and needs no writable disk.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::api::{
    BatchRequest, CancelledEvaluation, EvaluationCounts, EvaluationEvents, EvaluationPage,
    EvaluationQuery, Evaluations, SubmittedBatch,
};
use super::error::EvaluationsError;
use super::evaluation_service::EvaluationService;
use super::evaluator::Evaluator;
use super::metrics::{EvaluationMetrics, EvaluationTally};
use super::record::has_records;
use super::work::EvaluationServiceSettings;
use crate::evaluation::request::EvaluationRequest;
use crate::store::StoreError;
use cofferdam_core::job::Idempotency;
use cofferdam_core::values::deadline::Deadline;

/// When to ask a service again that is stopping.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An [`EvaluationService`] that starts with the first evaluation, or at once if the store has records of some.
pub struct LazyEvaluations {
    settings: EvaluationServiceSettings,
    evaluator: Arc<dyn Evaluator>,
    service: OnceLock<EvaluationService>,
    /// Whether new evaluations are refused. Held while the service starts; readers do not take it.
    is_draining: Mutex<bool>,
}

impl fmt::Debug for LazyEvaluations {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LazyEvaluations").field("service", &self.service).finish_non_exhaustive()
    }
}

impl LazyEvaluations {
    /// Starts the service if there are records.
    ///
    /// # Errors
    /// There are records that cannot be used, or another service owns them.
    pub fn new(
        settings: EvaluationServiceSettings,
        evaluator: Arc<dyn Evaluator>,
    ) -> Result<Self, StoreError> {
        let service = OnceLock::new();
        if has_records(&settings.store_dir) {
            let opened = EvaluationService::open(settings.clone(), Arc::clone(&evaluator))?;
            service.get_or_init(|| opened);
        }
        Ok(Self { settings, evaluator, service, is_draining: Mutex::new(false) })
    }

    fn opened(&self) -> Result<&EvaluationService, EvaluationsError> {
        if let Some(service) = self.service.get() {
            return Ok(service);
        }
        let is_draining = self.is_draining.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_draining {
            return Err(EvaluationsError::Draining { retry_after: RETRY_AFTER });
        }
        if let Some(service) = self.service.get() {
            return Ok(service);
        }
        let opened = EvaluationService::open(self.settings.clone(), Arc::clone(&self.evaluator));
        let opened = opened.map_err(|error| {
            log::error!(reason = error.to_string(); "the store of evaluations cannot be used");
            EvaluationsError::Store("it cannot be used".to_owned())
        })?;
        Ok(self.service.get_or_init(|| opened))
    }

    /// The service; without one there is no evaluation.
    fn found(&self) -> Result<&EvaluationService, EvaluationsError> {
        self.service.get().ok_or(EvaluationsError::NotFound)
    }
}

impl Evaluations for LazyEvaluations {
    fn submit(
        &self,
        owner: &str,
        request: EvaluationRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<String, EvaluationsError> {
        self.opened()?.submit(owner, request, idempotency)
    }

    fn submit_batch(
        &self,
        owner: &str,
        request: BatchRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<SubmittedBatch, EvaluationsError> {
        self.opened()?.submit_batch(owner, request, idempotency)
    }

    fn view(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        self.found()?.view(owner, id)
    }

    fn patch(&self, owner: &str, id: &str) -> Result<Vec<u8>, EvaluationsError> {
        self.found()?.patch(owner, id)
    }

    fn junit(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        self.found()?.junit(owner, id)
    }

    fn events(&self, owner: &str, id: &str) -> Result<EvaluationEvents, EvaluationsError> {
        self.found()?.events(owner, id)
    }

    fn cancel(&self, owner: &str, id: &str) -> Result<CancelledEvaluation, EvaluationsError> {
        self.found()?.cancel(owner, id)
    }

    fn list(
        &self,
        owner: &str,
        query: &EvaluationQuery,
    ) -> Result<EvaluationPage, EvaluationsError> {
        match self.service.get() {
            Some(service) => service.list(owner, query),
            None if query.cursor.is_some() => {
                Err(EvaluationsError::invalid("cursor", "want the cursor of a page before"))
            }
            None => Ok(EvaluationPage { json: "[]".to_owned(), next_cursor: None }),
        }
    }

    fn batch(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        self.found()?.batch(owner, id)
    }

    fn cancel_batch(&self, owner: &str, id: &str) -> Result<String, EvaluationsError> {
        self.found()?.cancel_batch(owner, id)
    }

    fn counts(&self) -> EvaluationCounts {
        let none =
            EvaluationCounts { capacity: self.settings.capacity as u64, ..Default::default() };
        self.service.get().map_or(none, Evaluations::counts)
    }

    fn metrics(&self) -> EvaluationMetrics {
        // A cache that an earlier process has filled is there before the service starts.
        let none =
            || EvaluationTally::default().read().with_cache_bytes(&self.evaluator.cache_bytes());
        self.service.get().map_or_else(none, Evaluations::metrics)
    }

    fn start_draining(&self) {
        *self.is_draining.lock().unwrap_or_else(PoisonError::into_inner) = true;
        if let Some(service) = self.service.get() {
            service.start_draining();
        }
    }

    fn cancel_all(&self) {
        if let Some(service) = self.service.get() {
            service.cancel_all();
        }
    }

    fn wait_idle(&self, deadline: Deadline) -> bool {
        self.service.get().is_none_or(|service| service.wait_idle(deadline))
    }
}
