//! Jobs of a service that makes its store when the first one comes: one that only ever answers
//! `/run` leaves no directory anywhere.

use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use super::JobService;
use crate::job::api::{JobFeed, JobPage, JobQuery, JobView, Jobs, OpenArtifact, Submitted};
use crate::job::metrics::JobMetrics;
use crate::job::runner::{Runner, RunnerSettings, ValidJob};
use crate::store::StoreError;
use cofferdam_core::job::{Artifact, ErrorCode, Idempotency, JobError, JobId, RunJobRequest};
use cofferdam_core::values::deadline::Deadline;

/// How long a service that ends may go on having the store.
const OWNED_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks at it.
const OWNED_STEP: Duration = Duration::from_millis(50);

/// Why there is no service of jobs.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread cannot be had.
    #[error("start workers: {0}")]
    Threads(io::Error),
    /// The process is about to end.
    #[error("no new jobs are taken")]
    Closed,
}

impl From<StartError> for JobError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Store(error) => error.into(),
            StartError::Threads(_) => Self::new(ErrorCode::IoFailed, error.to_string()),
            StartError::Closed => Self::new(ErrorCode::QueueClosed, error.to_string()),
        }
    }
}

/// A [`JobService`] from the first job on, or from the start where there is a store already.
#[derive(Debug)]
pub struct LazyJobs {
    settings: RunnerSettings,
    workers: usize,
    queue_max: usize,
    service: OnceLock<JobService>,
    /// Whether no new jobs are taken. Held while the service is started, which queued for the
    /// disk; whoever only looks does not wait for that.
    closed: Mutex<bool>,
}

impl LazyJobs {
    /// For so many workers, and as many jobs that wait.
    ///
    /// # Errors
    /// A store that is there and cannot be used. One that another service has is waited for
    /// shortly: that one may be about to end.
    pub fn new(
        settings: RunnerSettings,
        workers: usize,
        queue_max: usize,
    ) -> Result<Self, StartError> {
        let is_there = settings.store_dir.try_exists().unwrap_or(true);
        let jobs = Self::deferred(settings, workers, queue_max);
        if is_there {
            jobs.start_when_free(Deadline::after(OWNED_WITHIN))?;
        }
        Ok(jobs)
    }

    /// The same, but for a store that another service has: it is used once that is over.
    pub fn deferred(settings: RunnerSettings, workers: usize, queue_max: usize) -> Self {
        let service = OnceLock::new();
        Self { settings, workers, queue_max, service, closed: Mutex::default() }
    }

    fn start_when_free(&self, deadline: Deadline) -> Result<(), StartError> {
        loop {
            match self.start() {
                Err(StartError::Store(StoreError::Owned { .. })) if !deadline.passed() => {
                    sleep(OWNED_STEP);
                }
                started => return started.map(drop),
            }
        }
    }

    fn closed(&self) -> MutexGuard<'_, bool> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn service(&self) -> Option<&JobService> {
        self.service.get()
    }

    /// The service, where there is a store by now: another process may have made it.
    fn found(&self) -> Result<Option<&JobService>, JobError> {
        match self.service() {
            None if self.settings.store_dir.try_exists().unwrap_or(true) => {
                Ok(Some(self.started()?))
            }
            service => Ok(service),
        }
    }

    fn known(&self) -> Result<&JobService, JobError> {
        self.found()?.ok_or_else(JobError::not_found)
    }

    fn started(&self) -> Result<&JobService, JobError> {
        self.start().map_err(|error| {
            log::error!(reason = error.to_string(); "no jobs");
            error.into()
        })
    }

    fn start(&self) -> Result<&JobService, StartError> {
        if let Some(service) = self.service() {
            return Ok(service);
        }
        let closed = self.closed();
        if let Some(service) = self.service() {
            return Ok(service);
        }
        if *closed {
            return Err(StartError::Closed);
        }
        let (runner, recovered) = Runner::open(self.settings.clone())?;
        for id in &recovered.interrupted {
            log::warn!(job = id.as_str(); "job was interrupted by the end of an earlier service");
        }
        for record in &recovered.quarantined {
            log::warn!(record = record.name.as_str(), reason = record.reason.as_str(); "record set aside");
        }
        let started = JobService::start(runner, self.workers, self.queue_max);
        let started = started.map_err(StartError::Threads)?;
        Ok(self.service.get_or_init(|| started))
    }
}

impl Jobs for LazyJobs {
    fn submit(
        &self,
        request: RunJobRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Submitted, JobError> {
        // First: an invalid request must not create the store.
        let job = ValidJob::new(request, &self.settings.maxima)?;
        self.started()?.submit_valid(job, idempotency)
    }

    fn view(&self, id: &JobId) -> Result<JobView, JobError> {
        self.known()?.view(id)
    }

    fn list(&self, asked: &JobQuery) -> Result<JobPage, JobError> {
        self.found()?.map_or_else(|| Ok(JobPage::default()), |service| service.list(asked))
    }

    fn artifacts(&self, id: &JobId) -> Result<Vec<Artifact>, JobError> {
        self.known()?.artifacts(id)
    }

    fn open_artifact(&self, id: &JobId, path: &str) -> Result<OpenArtifact, JobError> {
        self.known()?.open_artifact(id, path)
    }

    fn cancel(&self, id: &JobId) -> Result<Submitted, JobError> {
        self.known()?.cancel(id)
    }

    fn follow(&self, id: &JobId) -> Result<JobFeed, JobError> {
        self.known()?.follow(id)
    }

    fn figures(&self) -> JobMetrics {
        let none = || JobMetrics {
            queue_max: self.queue_max,
            workers: self.workers,
            ..JobMetrics::default()
        };
        self.service().map_or_else(none, Jobs::figures)
    }

    fn start_draining(&self) {
        *self.closed() = true;
        if let Some(service) = self.service() {
            service.start_draining();
        }
    }

    fn cancel_all(&self) {
        if let Some(service) = self.service() {
            service.cancel_all();
        }
    }

    fn wait_idle(&self, deadline: Deadline) -> bool {
        self.service().is_none_or(|service| service.wait_idle(deadline))
    }
}
