//! A service of jobs that opens its store late: with the first job, or once another service
//! releases the store.
//!
//! A service that answers `/run` only therefore creates no directory and needs no writable disk.

use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use super::JobService;
use crate::job::api::{JobFeed, JobPage, JobQuery, JobView, Jobs, OpenArtifact, Submitted};
use crate::job::metrics::JobMetrics;
use crate::job::runner::{Runner, RunnerSettings, ValidJob};
use crate::store::StoreError;
use cofferdam_core::job::{Artifact, ErrorCode, Idempotency, JobError, JobId, ValidRequest};
use cofferdam_core::values::deadline::Deadline;

/// How long to wait for a service that is about to end and still owns the store.
const OWNED_WITHIN: Duration = Duration::from_secs(2);
/// How long to wait between two attempts.
const OWNED_STEP: Duration = Duration::from_millis(50);

/// Why the service of jobs did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread cannot be started.
    #[error("start workers: {0}")]
    Threads(io::Error),
    /// The process is draining.
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

/// A [`JobService`] that starts with the first job, or at once if the store exists.
#[derive(Debug)]
pub struct LazyJobs {
    settings: RunnerSettings,
    workers: usize,
    queue_max: usize,
    service: OnceLock<JobService>,
    /// Whether new jobs are refused. Held while the service starts, which waits for the disk;
    /// readers do not take it.
    closed: Mutex<bool>,
}

impl LazyJobs {
    /// Starts the service if the store exists. If another service owns the store, waits shortly:
    /// that service may be about to end.
    ///
    /// # Errors
    /// The store exists and cannot be used.
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

    /// The same, but does not open the store yet. A request opens it.
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

    /// The service, if the store exists by now. Another process may have created it.
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
            log::error!(reason = error.to_string(); "the jobs' store cannot be opened");
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
        request: ValidRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Submitted, JobError> {
        // First: a request that is refused must not create the store.
        let Self { settings, .. } = self;
        let job = ValidJob::new(request, &settings.maxima, settings.egress.service.secrets())?;
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

    fn metrics(&self) -> JobMetrics {
        let none = || JobMetrics {
            queue_max: self.queue_max,
            workers: self.workers,
            ..JobMetrics::default()
        };
        self.service().map_or_else(none, Jobs::metrics)
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
