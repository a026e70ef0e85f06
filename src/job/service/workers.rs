//! The state of a service of jobs, the loop of its workers, and the janitor of its records.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

use super::foreign::{ForeignJobs, progress_of};
use super::unwritten::UnwrittenResults;
use crate::job::api::{JobProgress, Submitted};
use crate::job::control::JobControl;
use crate::job::metrics::{JobCounts, JobMetrics};
use crate::job::outcome::JobOutcome;
use crate::job::runner::{AcceptedJob, EndedJob, Runner, ValidJob, cannot};
use crate::job::service::queue::{JobQueue, QueueError};
use crate::store::StoreError;
use cofferdam_core::job::{
    ErrorCode, Idempotency, JobError, JobId, JobLine, JobStatus, LiveJob, RunJobResult,
};
use cofferdam_core::sync::request_id::{RequestId, on_behalf_of};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::utc::rfc3339;

/// How often the janitor looks for cancel requests of other processes in the store.
const CANCEL_LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often a worker checks for a permit that a sandbox held after its job ended.
const PERMIT_LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often the janitor looks for expired records.
const EXPIRY_LOOK_EVERY: Duration = Duration::from_secs(60);
/// How often the janitor looks for records of other processes.
const STORE_LOOK_EVERY: Duration = Duration::from_secs(5);

/// What the workers, the janitor and the callers of a service share.
#[derive(Debug)]
pub(super) struct ServiceState {
    pub(super) runner: Runner,
    jobs: Mutex<JobQueue<QueuedJob, Arc<ActiveJob>>>,
    /// Notified when a job arrives or ends, and when the service ends.
    pub(super) changed: Condvar,
    /// Held while a request with an `Idempotency-Key` becomes a job, so that two concurrent copies
    /// become one job.
    pub(super) naming: Mutex<()>,
    /// Results that the store does not have yet.
    pub(super) unwritten: UnwrittenResults,
    /// Followed jobs of other processes.
    foreign: ForeignJobs,
    /// Set when the service ends without waiting for unwritten results.
    pub(super) ends: AtomicBool,
    counts: JobCounts,
}

/// A job that waits for a worker.
#[derive(Debug)]
pub(super) struct QueuedJob {
    job: AcceptedJob,
    live: Arc<ActiveJob>,
    request_id: RequestId,
}

/// A job that has not ended.
#[derive(Debug)]
pub(super) struct ActiveJob {
    pub(super) control: JobControl,
    pub(super) queued_at: SystemTime,
    pub(super) started_at: Mutex<Option<SystemTime>>,
}

impl ActiveJob {
    pub(super) fn line(&self, id: &JobId) -> LiveJob {
        let started_at = *self.started_at.lock().unwrap_or_else(PoisonError::into_inner);
        LiveJob {
            job_id: id.clone(),
            status: match started_at {
                Some(_) => JobStatus::Running,
                None => JobStatus::Queued,
            },
            queued_at: rfc3339(self.queued_at),
            started_at: started_at.map(rfc3339),
        }
    }
}

impl ServiceState {
    /// The state of a service with so many workers and room for `queue_max` waiting jobs.
    pub(super) fn new(runner: Runner, workers: usize, queue_max: usize) -> Self {
        Self {
            runner,
            jobs: Mutex::new(JobQueue::new(workers, queue_max)),
            changed: Condvar::new(),
            naming: Mutex::default(),
            unwritten: UnwrittenResults::default(),
            foreign: ForeignJobs::default(),
            ends: AtomicBool::new(false),
            counts: JobCounts::default(),
        }
    }

    pub(super) fn jobs(&self) -> MutexGuard<'_, JobQueue<QueuedJob, Arc<ActiveJob>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one job. Returns false when the service ends and no job is left.
    pub(super) fn work(&self) -> bool {
        let mut jobs = self.jobs();
        let (QueuedJob { job, live, request_id }, permit) = loop {
            // While a result cannot be written, no other could be written either.
            if self.unwritten.is_empty()
                && let Some(begun) = jobs.begin()
            {
                break begun;
            }
            if jobs.is_closed() && jobs.is_idle() {
                return false;
            }
            let wait = if jobs.wants_permit() { PERMIT_LOOK_EVERY } else { Duration::MAX };
            let waited = self.changed.wait_timeout(jobs, wait);
            jobs = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(jobs);
        let id = job.id().clone();
        *live.started_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(SystemTime::now());
        on_behalf_of(Some(request_id), || {
            let permit = Arc::new(permit);
            let retained = Retained::of(permit.clone());
            let result = self.keep_result(self.runner.run_accepted(job, &live.control, &retained));
            // Before the end is announced: callers then read the result or submit another job.
            self.jobs().end(&id);
            drop(permit);
            self.announce_end(&result, &live);
        });
        self.changed.notify_all();
        true
    }

    /// Keeps a result in memory if the store does not have it.
    fn keep_result(&self, EndedJob { result, unstored }: EndedJob) -> RunJobResult {
        match unstored {
            Some(unstored) => self.unwritten.keep(&result, unstored),
            None => drop(self.runner.store().remove_beyond_max()),
        }
        result
    }

    /// Logs, counts and announces a job that has ended.
    fn announce_end(&self, result: &RunJobResult, live: &ActiveJob) {
        self.counts.count(result.status);
        log::info!(
            job = result.job_id.as_str(),
            status = result.status.word(),
            code = result.error.as_ref().map(|error| error.code.word()),
            exit_code = result.exit_code,
            duration_ms = result.timing.duration_ms;
            "job ended"
        );
        live.control.enter(result.status);
    }

    /// Ends jobs that waited.
    pub(super) fn end_unrun(&self, queued: Vec<QueuedJob>, outcome: impl Fn() -> JobOutcome) {
        for QueuedJob { job, live, request_id } in queued {
            let id = job.id().clone();
            on_behalf_of(Some(request_id), || {
                let result = self.keep_result(self.runner.end_unrun(job, outcome()));
                self.jobs().forget(&id);
                self.announce_end(&result, &live);
            });
        }
        self.changed.notify_all();
    }

    /// The loop of the janitor: retries writes, follows other processes, expires records.
    pub(super) fn maintain(&self) {
        let (mut looked, mut expired) = (Instant::now(), Instant::now());
        loop {
            let jobs = self.jobs();
            if jobs.is_closed() && jobs.is_idle() && self.is_written() {
                self.foreign.clear();
                return;
            }
            let is_quiet = jobs.is_idle() && self.foreign.is_empty();
            let wait = if is_quiet { STORE_LOOK_EVERY } else { CANCEL_LOOK_EVERY };
            let wait = self.unwritten.due_in().map_or(wait, |due| due.min(wait));
            let waited = self.changed.wait_timeout(jobs, wait);
            let jobs = waited.unwrap_or_else(PoisonError::into_inner).0;
            let live: Vec<(JobId, Arc<ActiveJob>)> =
                jobs.all_live().map(|(id, live)| (id.clone(), Arc::clone(live))).collect();
            drop(jobs);
            if self.unwritten.retry() {
                // The lock orders this after a worker that saw unwritten results and is about to wait.
                drop(self.jobs());
                self.changed.notify_all();
            }
            let store = self.runner.store();
            self.foreign.poll(store);
            for (id, live) in live {
                if store.cancel_requested(&id) {
                    self.end(&id, &live);
                }
            }
            if expired.elapsed() >= EXPIRY_LOOK_EVERY {
                (expired, looked) = (Instant::now(), Instant::now());
                store.remove_expired(SystemTime::now());
            } else if looked.elapsed() >= STORE_LOOK_EVERY {
                looked = Instant::now();
                store.refresh_and_remove_beyond_max();
            }
        }
    }

    /// Cancels a job. A waiting job ends at once.
    pub(super) fn end(&self, id: &JobId, live: &ActiveJob) -> JobStatus {
        live.control.cancel();
        let withdrawn = self.jobs().withdraw(id);
        match withdrawn {
            Some(queued) => {
                self.end_unrun(vec![queued], JobOutcome::canceled);
                JobStatus::Canceled
            }
            None => JobStatus::Running,
        }
    }

    pub(super) fn live(&self, id: &JobId) -> Option<Arc<ActiveJob>> {
        self.jobs().live(id).cloned()
    }

    pub(super) fn submit(
        &self,
        job: ValidJob,
        idempotency: Option<Idempotency>,
    ) -> Result<Submitted, JobError> {
        if !self.unwritten.is_empty() {
            return Err(unwritable());
        }
        let control = JobControl::new().map_err(|error| cannot("eventfd", &error))?;
        self.jobs().reserve().map_err(refused)?;
        let accepted = self.runner.accept(job, idempotency);
        let job = accepted.inspect_err(|_| self.jobs().release()).map_err(not_taken)?;
        let id = job.id().clone();
        let live = Arc::new(ActiveJob {
            control,
            queued_at: job.queued_at(),
            started_at: Mutex::default(),
        });
        let request_id = RequestId::current().unwrap_or_else(RequestId::make);
        let queued = QueuedJob { job, live: Arc::clone(&live), request_id };
        log::info!(job = id.as_str(); "job taken");
        let entered = self.jobs().enter(id.clone(), queued, live);
        match entered {
            Ok(()) => self.changed.notify_all(),
            Err(queued) => {
                queued.job.discard();
                return Err(refused(QueueError::Closed));
            }
        }
        Ok(Submitted { job_id: id, status: JobStatus::Queued })
    }

    /// Follows a job that has ended or belongs to another process.
    pub(super) fn follow_by_files(
        &self,
        id: &JobId,
    ) -> Result<watch::Receiver<JobProgress>, JobError> {
        let now = progress_of(self.runner.store(), id).map_err(StoreError::logged)?;
        let now = now.ok_or_else(JobError::not_found)?;
        let status = self.line(id)?.status;
        if status.is_terminal() {
            return Ok(watch::channel(JobProgress { status, ..now }).1);
        }
        let progress = self.foreign.follow(id, now);
        // The janitor may be about to wait for seconds.
        drop(self.jobs());
        self.changed.notify_all();
        Ok(progress)
    }

    /// The counters.
    pub(super) fn metrics(&self) -> JobMetrics {
        let jobs = self.jobs();
        JobMetrics {
            queued: jobs.queued(),
            queue_max: jobs.queue_max(),
            running: jobs.running(),
            workers: jobs.workers(),
            ended: self.counts.read(),
        }
    }

    /// Whether the service need not wait for an unwritten result.
    pub(super) fn is_written(&self) -> bool {
        self.unwritten.is_empty() || self.ends.load(Ordering::SeqCst)
    }

    pub(super) fn result(&self, id: &JobId) -> Result<Option<RunJobResult>, JobError> {
        match self.unwritten.get(id) {
            Some(result) => Ok(Some(result)),
            None => self.runner.store().result(id).map_err(StoreError::logged),
        }
    }

    /// The state of a job that this service is not running.
    pub(super) fn line(&self, id: &JobId) -> Result<JobLine, JobError> {
        if let Some(result) = self.unwritten.get(id) {
            return Ok(JobLine::from(&result));
        }
        self.runner.store().line(id).map_err(StoreError::logged)?.ok_or_else(JobError::not_found)
    }
}

/// The answer for a job whose record could not be created.
fn not_taken(error: StoreError) -> JobError {
    if !error.may_pass() {
        return error.logged();
    }
    log::error!(reason = error.to_string(); "job not taken: the store cannot be written");
    unwritable()
}

fn unwritable() -> JobError {
    let words = "no new jobs are taken: the store cannot be written";
    JobError::new(ErrorCode::QueueClosed, words).with("reason", "store_unwritable")
}

fn refused(why: QueueError) -> JobError {
    match why {
        QueueError::Full => JobError::new(ErrorCode::QueueFull, "as many jobs wait as may"),
        QueueError::Closed => JobError::new(ErrorCode::QueueClosed, "no new jobs are taken"),
    }
}
