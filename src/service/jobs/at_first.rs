//! Jobs of a service that makes its store when the first one comes: one that only ever answers
//! `/run` leaves no directory anywhere.

use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::counts::JobFigures;
use super::door::{Feed, JobPage, JobView, Jobs, ListAsked, OpenArtifact, Submitted};
use super::runner::{Runner, RunnerSettings};
use super::service::JobService;
use crate::base::deadline::Deadline;
use crate::spec::job::{Artifact, ErrorCode, Idempotency, JobError, JobId, RunJobRequest};

/// A [`JobService`] from the first job on, or from the start where there is a store already.
#[derive(Debug)]
pub struct JobsAtFirst {
    settings: RunnerSettings,
    workers: usize,
    queue_max: usize,
    service: OnceLock<JobService>,
    /// Whether no new jobs are taken. Held while the service is started, which waits for the
    /// disk; whoever only looks does not wait for that.
    closed: Mutex<bool>,
}

impl JobsAtFirst {
    /// For so many workers, and as many jobs that wait.
    ///
    /// # Errors
    /// A store that is there and cannot be used.
    pub fn new(
        settings: RunnerSettings,
        workers: usize,
        queue_max: usize,
    ) -> Result<Self, JobError> {
        let is_there = settings.store_dir.try_exists().unwrap_or(true);
        let service = OnceLock::new();
        let jobs = Self { settings, workers, queue_max, service, closed: Mutex::default() };
        if is_there {
            jobs.started()?;
        }
        Ok(jobs)
    }

    fn closed(&self) -> MutexGuard<'_, bool> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn service(&self) -> Option<&JobService> {
        self.service.get()
    }

    fn known(&self) -> Result<&JobService, JobError> {
        self.service().ok_or_else(JobError::not_found)
    }

    fn started(&self) -> Result<&JobService, JobError> {
        if let Some(service) = self.service() {
            return Ok(service);
        }
        let closed = self.closed();
        if let Some(service) = self.service() {
            return Ok(service);
        }
        if *closed {
            return Err(JobError::new(ErrorCode::QueueClosed, "no new jobs are taken"));
        }
        let (runner, recovered) = Runner::open(self.settings.clone())?;
        for id in &recovered.interrupted {
            log::warn!(job = id.as_str(); "job was interrupted by the end of an earlier service");
        }
        for record in &recovered.quarantined {
            log::warn!(record = record.name.as_str(), reason = record.reason.as_str(); "record set aside");
        }
        let started = JobService::start(runner, self.workers, self.queue_max);
        let no_thread = |error: io::Error| super::runner::cannot("start workers", &error);
        let started = started.map_err(no_thread)?;
        Ok(self.service.get_or_init(|| started))
    }
}

impl Jobs for JobsAtFirst {
    fn submit(
        &self,
        request: RunJobRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Submitted, JobError> {
        // Before there is a store for it.
        request.check()?;
        request.check_maxima(&self.settings.maxima)?;
        self.started()?.submit(request, idempotency)
    }

    fn view(&self, id: &JobId) -> Result<JobView, JobError> {
        self.known()?.view(id)
    }

    fn list(&self, asked: &ListAsked) -> Result<JobPage, JobError> {
        self.service().map_or_else(|| Ok(JobPage::default()), |service| service.list(asked))
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

    fn follow(&self, id: &JobId) -> Result<Feed, JobError> {
        self.known()?.follow(id)
    }

    fn figures(&self) -> JobFigures {
        let none = || JobFigures {
            queue_max: self.queue_max,
            workers: self.workers,
            ..JobFigures::default()
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
