//! A service of jobs: a bounded queue and workers behind the [`Jobs`] API.

mod foreign;
pub(super) mod lazy;
mod queue;
mod unwritten;
mod workers;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use self::workers::ServiceState;
use super::runner::{Runner, ValidJob};
use crate::job::api::{JobFeed, JobPage, JobQuery, JobView, Jobs, OpenArtifact, Submitted};
use crate::job::metrics::JobMetrics;
use crate::job::outcome::JobOutcome;
use crate::store::StoreError;
use cofferdam_core::Stream;
use cofferdam_core::job::{
    Artifact, ErrorCode, Idempotency, JobError, JobId, JobStatus, LiveJob, ValidRequest,
};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::rel_path::RelPath;

/// How long an `Idempotency-Key` stands for its request.
const KEY_VALID_FOR: Duration = Duration::from_secs(24 * 3600);

/// Whether a key that was first used at that time is still valid.
fn is_valid(at: SystemTime) -> bool {
    // If the clock was set back, the key is treated as new.
    at.elapsed().unwrap_or_default() < KEY_VALID_FOR
}

/// The first answer again, if the request is the same.
fn first_answer(job_id: JobId, is_same: bool) -> Result<Submitted, JobError> {
    if is_same {
        return Ok(Submitted { job_id, status: JobStatus::Queued });
    }
    let words = "this Idempotency-Key came with another body before";
    Err(JobError::new(ErrorCode::JobConflict, words).with("job_id", job_id.as_str()))
}

/// Runs jobs on its own workers, in the order of arrival. Dropping it ends the jobs.
#[derive(Debug)]
pub struct JobService {
    shared: Arc<ServiceState>,
    threads: Vec<JoinHandle<()>>,
}

impl JobService {
    /// Starts `workers` over `runner`, with room for `queue_max` waiting jobs.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(runner: Runner, workers: usize, queue_max: usize) -> std::io::Result<Self> {
        let shared = Arc::new(ServiceState::new(runner, workers, queue_max));
        let mut service = Self { shared, threads: Vec::new() };
        for _ in 0..workers {
            service.spawn("job", |shared| while shared.work() {})?;
        }
        service.spawn("job-janitor", ServiceState::maintain)?;
        Ok(service)
    }

    /// Accepts a job, or repeats the answer to the same `Idempotency-Key`.
    pub(super) fn submit_valid(
        &self,
        job: ValidJob,
        idempotency: Option<Idempotency>,
    ) -> Result<Submitted, JobError> {
        let Some(asked) = &idempotency else { return self.shared.submit(job, None) };
        let _naming = self.shared.naming.lock().unwrap_or_else(PoisonError::into_inner);
        match self.shared.runner.store().by_idempotency(&asked.key) {
            Some((job_id, body, at)) if is_valid(at) => first_answer(job_id, asked.body == body),
            _ => self.shared.submit(job, idempotency),
        }
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(&ServiceState) + Send + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(&shared))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for JobService {
    fn drop(&mut self) {
        self.start_draining();
        self.cancel_all();
        for thread in self.threads.drain(..) {
            // A panic has already been logged.
            let _ = thread.join();
        }
        self.shared.unwritten.give_up();
    }
}

impl Jobs for JobService {
    fn submit(
        &self,
        request: ValidRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Submitted, JobError> {
        let job = self.shared.runner.valid(request)?;
        self.submit_valid(job, idempotency)
    }

    fn view(&self, id: &JobId) -> Result<JobView, JobError> {
        if let Some(live) = self.shared.live(id) {
            return Ok(JobView::Live(live.line(id)));
        }
        if let Some(result) = self.shared.result(id)? {
            return Ok(JobView::Ended(Box::new(result)));
        }
        // The job may belong to another process.
        let line = self.shared.line(id)?;
        let (job_id, status) = (line.job_id, line.status);
        let (queued_at, started_at) = (line.queued_at, line.started_at);
        Ok(JobView::Live(LiveJob { job_id, status, queued_at, started_at }))
    }

    fn list(&self, asked: &JobQuery) -> Result<JobPage, JobError> {
        let JobQuery { status, limit, cursor } = asked;
        let listed = self.shared.runner.store().list(*status, *limit, cursor.as_deref());
        let (jobs, next_cursor) = listed.map_err(StoreError::logged)?;
        Ok(JobPage { jobs, next_cursor })
    }

    fn artifacts(&self, id: &JobId) -> Result<Vec<Artifact>, JobError> {
        match self.view(id)? {
            JobView::Ended(result) => Ok(result.artifacts),
            JobView::Live(_) => {
                Err(JobError::new(ErrorCode::JobConflict, "the job is not over yet"))
            }
        }
    }

    fn open_artifact(&self, id: &JobId, path: &str) -> Result<OpenArtifact, JobError> {
        let not_listed = || JobError::new(ErrorCode::JobNotFound, "no such artifact");
        let artifacts = self.artifacts(id)?;
        let listed = artifacts.into_iter().find(|listed| listed.path == path);
        let Artifact { bytes, sha256, .. } = listed.ok_or_else(not_listed)?;
        let path = RelPath::parse(path).map_err(|_| not_listed())?;
        let file =
            self.shared.runner.store().open_artifact(id, &path).map_err(StoreError::logged)?;
        Ok(OpenArtifact { file, bytes, sha256 })
    }

    fn cancel(&self, id: &JobId) -> Result<Submitted, JobError> {
        if let Some(live) = self.shared.live(id) {
            let status = self.shared.end(id, &live);
            return Ok(Submitted { job_id: id.clone(), status });
        }
        let store = self.shared.runner.store();
        let line = self.shared.line(id)?;
        if line.status.is_terminal() {
            let error = JobError::new(ErrorCode::JobConflict, "the job is over");
            return Err(error.with("status", line.status.word()));
        }
        store.request_cancel(id).map_err(StoreError::logged)?;
        Ok(Submitted { job_id: line.job_id, status: line.status })
    }

    fn follow(&self, id: &JobId) -> Result<JobFeed, JobError> {
        let shared = &self.shared;
        let live = shared.live(id);
        let store = shared.runner.store();
        if live.is_none() {
            // Fails if there is no such job.
            shared.line(id)?;
        }
        let stdout = store.open_stream(id, Stream::Stdout).map_err(StoreError::logged)?;
        let stderr = store.open_stream(id, Stream::Stderr).map_err(StoreError::logged)?;
        let progress = match live {
            Some(live) => live.control.progress().subscribe(),
            None => shared.follow_by_files(id)?,
        };
        Ok(JobFeed { stdout, stderr, progress })
    }

    fn metrics(&self) -> JobMetrics {
        self.shared.metrics()
    }

    fn start_draining(&self) {
        self.shared.jobs().close();
        self.shared.changed.notify_all();
    }

    fn cancel_all(&self) {
        let queued = {
            let mut jobs = self.shared.jobs();
            jobs.all_live().for_each(|(_, live)| live.control.interrupt());
            jobs.withdraw_all()
        };
        // From now on the service waits for running jobs only, not for unwritten results.
        self.shared.ends.store(true, Ordering::SeqCst);
        self.shared.end_unrun(queued, JobOutcome::interrupted);
    }

    fn wait_idle(&self, deadline: Deadline) -> bool {
        let jobs = self.shared.jobs();
        let waited = self.shared.changed.wait_timeout_while(jobs, deadline.remaining(), |jobs| {
            !(jobs.is_idle() && self.shared.is_written())
        });
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}
