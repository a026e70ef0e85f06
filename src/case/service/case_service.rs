//! The service of runs of Cases.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::api::{
    CancelledCaseRun, CaseRunCounts, CaseRunDocument, CaseRunEvents, CaseRunPage, CaseRunQuery,
    CaseRunRequest, CaseRunView, CaseRuns, StagedCase, SubmittedCaseRun,
};
use super::error::CaseRunsError;
use super::record::ServiceFile;
use super::runners::CaseRunners;
use super::settings::CaseServiceSettings;
use super::work::Shared;
use cofferdam_core::job::Idempotency;
use cofferdam_core::values::deadline::Deadline;

/// How long a service that is dropped waits for its Cells.
const DROPPED_WITHIN: Duration = Duration::from_secs(10);

/// Runs Cases and keeps their runs. Dropping it ends what runs; the next service goes on with it.
#[derive(Debug)]
pub struct CaseService {
    shared: Arc<Shared>,
    janitor: Option<JoinHandle<()>>,
}

impl CaseService {
    /// Finds the runs of the store, and goes on with those that have not ended. Makes no directory.
    ///
    /// # Errors
    /// The store cannot be read, or there are no threads.
    pub fn open(
        settings: CaseServiceSettings,
        runners: Arc<dyn CaseRunners>,
    ) -> Result<Self, CaseRunsError> {
        let shared = Arc::new(Shared::new(settings, runners));
        shared.recover()?;
        let tidied = Arc::clone(&shared);
        let named = thread::Builder::new().name("case-retention".to_owned());
        let janitor = named.spawn(move || tidied.keep_tidy());
        let janitor = janitor.map_err(|error| CaseRunsError::Store(format!("thread: {error}")))?;
        Ok(Self { shared, janitor: Some(janitor) })
    }
}

impl Drop for CaseService {
    fn drop(&mut self) {
        self.interrupt_all();
        self.shared.end_janitor();
        if let Some(janitor) = self.janitor.take() {
            // A panic has already been logged.
            let _ = janitor.join();
        }
        if self.wait_idle(Deadline::after(DROPPED_WITHIN)) {
            // A thread that has ended its Cell may hold the state a moment longer.
            self.shared.release_runs();
        } else {
            log::error!("Cells have not ended with the service");
        }
    }
}

impl CaseRuns for CaseService {
    fn stage(&self) -> Result<StagedCase, CaseRunsError> {
        self.shared.stage()
    }

    fn submit(
        &self,
        owner: &str,
        request: CaseRunRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<SubmittedCaseRun, CaseRunsError> {
        self.shared.admit(owner, request, idempotency)
    }

    fn view(&self, owner: &str, id: &str) -> Result<CaseRunView, CaseRunsError> {
        self.shared.state().of(owner, id).map(ServiceFile::view)
    }

    fn list(&self, owner: &str, query: &CaseRunQuery) -> Result<CaseRunPage, CaseRunsError> {
        self.shared.state().page(owner, query)
    }

    fn results(&self, owner: &str, id: &str) -> Result<CaseRunDocument, CaseRunsError> {
        self.shared.results(owner, id)
    }

    fn junit(&self, owner: &str, id: &str) -> Result<CaseRunDocument, CaseRunsError> {
        self.shared.report(owner, id, "junit.xml")
    }

    fn report(&self, owner: &str, id: &str) -> Result<CaseRunDocument, CaseRunsError> {
        self.shared.report(owner, id, "report.html")
    }

    fn events(&self, owner: &str, id: &str) -> Result<CaseRunEvents, CaseRunsError> {
        self.shared.follow(owner, id)
    }

    fn cancel(&self, owner: &str, id: &str) -> Result<CancelledCaseRun, CaseRunsError> {
        self.shared.cancel_run(owner, id)
    }

    fn counts(&self) -> CaseRunCounts {
        self.shared.state().counts(self.shared.workers())
    }

    fn start_draining(&self) {
        self.shared.start_draining();
    }

    fn interrupt_all(&self) {
        self.shared.interrupt_all();
    }

    fn wait_idle(&self, deadline: Deadline) -> bool {
        self.shared.wait_idle(deadline)
    }
}
