//! Many jobs: a bounded queue, workers, and a keeper of their records.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

use super::control::Control;
use super::counts::{JobCounts, JobFigures};
use super::door::{Feed, JobPage, JobView, Jobs, ListAsked, OpenArtifact, Progress, Submitted};
use super::ending::Ending;
use super::runner::{AcceptedJob, EndedJob, Runner, cannot};
use super::waiting::{NoPlace, Waiting};
use crate::base::deadline::Deadline;
use crate::base::rel_path::RelPath;
use crate::base::request_id::{RequestId, on_behalf_of};
use crate::base::retained::Retained;
use crate::base::utc::rfc3339;
use crate::spec::Stream;
use crate::spec::job::{
    Artifact, ErrorCode, Idempotency, JobError, JobId, JobStatus, LiveJob, RunJobRequest,
    RunJobResult,
};

/// How often the keeper looks for cancels that another process has left in the store.
const CANCEL_LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often a worker looks for a permit that a box kept after its job was over.
const PERMIT_LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the name that a client has given its request stands for it.
const NAMES_KNOWN_FOR: Duration = Duration::from_secs(24 * 3600);
/// How often it looks for records that have grown old.
const EXPIRY_LOOK_EVERY: Duration = Duration::from_secs(60);

/// Runs jobs on workers of its own, the first come first. Dropped, it ends them.
#[derive(Debug)]
pub struct JobService {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    runner: Runner,
    jobs: Mutex<Waiting<QueuedJob, Arc<Live>>>,
    /// A job came, one ended, or the service does.
    changed: Condvar,
    /// Held while a named request becomes a job: sent twice at once, it is one.
    naming: Mutex<()>,
    counts: JobCounts,
}

#[derive(Debug)]
struct QueuedJob {
    job: AcceptedJob,
    live: Arc<Live>,
    request_id: RequestId,
}

/// What anybody may know of a job that is not over.
#[derive(Debug)]
struct Live {
    control: Control,
    queued_at: SystemTime,
    started_at: Mutex<Option<SystemTime>>,
}

impl JobService {
    /// Starts `workers` over `runner`, with room for `queue_max` jobs that wait.
    ///
    /// # Errors
    /// A thread that cannot be had.
    pub fn start(runner: Runner, workers: usize, queue_max: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            runner,
            jobs: Mutex::new(Waiting::new(workers, queue_max)),
            changed: Condvar::new(),
            naming: Mutex::default(),
            counts: JobCounts::default(),
        });
        let mut service = Self { shared, threads: Vec::new() };
        for _ in 0..workers {
            service.spawn("job", |shared| while shared.work() {})?;
        }
        service.spawn("job-keeper", Shared::keep)?;
        Ok(service)
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(&Shared) + Send + 'static,
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
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, Waiting<QueuedJob, Arc<Live>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does one job; false when there will be none any more.
    fn work(&self) -> bool {
        let mut jobs = self.jobs();
        let (QueuedJob { job, live, request_id }, permit) = loop {
            if let Some(begun) = jobs.begin() {
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
            let ended = self.runner.perform(job, &live.control, &retained);
            // First: whoever hears of the end asks the store for the result, or for another job.
            self.jobs().end(&id);
            drop((retained, permit));
            self.over(ended, &live);
        });
        self.changed.notify_all();
        true
    }

    /// Tells of a job that is over and in the store.
    fn over(&self, EndedJob { result, unstored }: EndedJob, live: &Live) {
        self.counts.count(result.status);
        let id = &result.job_id;
        if let Some(error) = unstored {
            log::error!(job = id.as_str(), reason = error.to_string(); "job's record lost");
        }
        log::info!(
            job = id.as_str(),
            status = result.status.word(),
            code = result.error.as_ref().map(|error| error.code.word()),
            exit_code = result.exit_code,
            duration_ms = result.timing.duration_ms;
            "job ended"
        );
        live.control.enter(result.status);
    }

    /// Ends jobs that waited.
    fn end_unrun(&self, queued: Vec<QueuedJob>, ending: impl Fn() -> Ending) {
        for QueuedJob { job, live, request_id } in queued {
            let id = job.id().clone();
            on_behalf_of(Some(request_id), || {
                let ended = self.runner.end_unrun(job, ending());
                self.jobs().forget(&id);
                self.over(ended, &live);
            });
        }
        self.changed.notify_all();
    }

    /// Looks after records until the service ends.
    fn keep(&self) {
        let mut looked = Instant::now();
        loop {
            let jobs = self.jobs();
            if jobs.is_closed() && jobs.is_idle() {
                return;
            }
            let wait = if jobs.is_idle() { EXPIRY_LOOK_EVERY } else { CANCEL_LOOK_EVERY };
            let waited = self.changed.wait_timeout(jobs, wait);
            let jobs = waited.unwrap_or_else(PoisonError::into_inner).0;
            let live: Vec<(JobId, Arc<Live>)> =
                jobs.all_live().map(|(id, live)| (id.clone(), Arc::clone(live))).collect();
            drop(jobs);
            let store = self.runner.store();
            for (id, live) in live {
                if store.cancel_requested(&id) {
                    self.end(&id, &live);
                }
            }
            if looked.elapsed() >= EXPIRY_LOOK_EVERY {
                looked = Instant::now();
                store.remove_expired(SystemTime::now());
            }
        }
    }

    /// Ends a live job: at once if it waits.
    fn end(&self, id: &JobId, live: &Live) -> JobStatus {
        live.control.cancel();
        let withdrawn = self.jobs().withdraw(id);
        match withdrawn {
            Some(queued) => {
                self.end_unrun(vec![queued], Ending::canceled);
                JobStatus::Canceled
            }
            None => JobStatus::Running,
        }
    }

    fn live(&self, id: &JobId) -> Option<Arc<Live>> {
        self.jobs().live(id).cloned()
    }

    fn submit(
        &self,
        request: RunJobRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Submitted, JobError> {
        self.runner.check(&request)?;
        let control = Control::new().map_err(|error| cannot("eventfd", &error))?;
        self.jobs().promise().map_err(no_place)?;
        let accepted = self.runner.accept(request, idempotency);
        let job = accepted.inspect_err(|_| self.jobs().give_back())?;
        let id = job.id().clone();
        let live =
            Arc::new(Live { control, queued_at: job.queued_at(), started_at: Mutex::default() });
        let request_id = RequestId::current().unwrap_or_else(RequestId::make);
        let queued = QueuedJob { job, live: Arc::clone(&live), request_id };
        log::info!(job = id.as_str(); "job taken");
        let entered = self.jobs().enter(id.clone(), queued, live);
        match entered {
            Ok(()) => self.changed.notify_all(),
            Err(queued) => {
                queued.job.discard();
                return Err(no_place(NoPlace::Closed));
            }
        }
        Ok(Submitted { job_id: id, status: JobStatus::Queued })
    }

    /// What there is to tell of the jobs.
    fn figures(&self) -> JobFigures {
        let jobs = self.jobs();
        JobFigures {
            queued: jobs.queued(),
            queue_max: jobs.queue_max(),
            running: jobs.running(),
            workers: jobs.workers(),
            ended: self.counts.read(),
        }
    }

    fn result(&self, id: &JobId) -> Result<Option<RunJobResult>, JobError> {
        Ok(self.runner.store().result(id)?)
    }
}

/// Whether a name that was given then still stands for that request.
fn is_known(at: SystemTime) -> bool {
    // A clock that was set back makes it younger, not unknown.
    at.elapsed().unwrap_or_default() < NAMES_KNOWN_FOR
}

/// What was answered before, where the request is the same.
fn first_answer(job_id: JobId, is_same: bool) -> Result<Submitted, JobError> {
    if is_same {
        return Ok(Submitted { job_id, status: JobStatus::Queued });
    }
    let words = "this Idempotency-Key came with another body before";
    Err(JobError::new(ErrorCode::JobConflict, words).with("job_id", job_id.as_str()))
}

fn no_place(why: NoPlace) -> JobError {
    match why {
        NoPlace::Full => JobError::new(ErrorCode::QueueFull, "as many jobs wait as may"),
        NoPlace::Closed => JobError::new(ErrorCode::QueueClosed, "no new jobs are taken"),
    }
}

impl Live {
    fn line(&self, id: &JobId) -> LiveJob {
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

impl Jobs for JobService {
    fn submit(
        &self,
        request: RunJobRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Submitted, JobError> {
        let Some(asked) = &idempotency else { return self.shared.submit(request, None) };
        let _naming = self.shared.naming.lock().unwrap_or_else(PoisonError::into_inner);
        match self.shared.runner.store().by_idempotency(&asked.key) {
            Some((job_id, body, at)) if is_known(at) => first_answer(job_id, asked.body == body),
            _ => self.shared.submit(request, idempotency),
        }
    }

    fn view(&self, id: &JobId) -> Result<JobView, JobError> {
        if let Some(live) = self.shared.live(id) {
            return Ok(JobView::Live(live.line(id)));
        }
        if let Some(result) = self.shared.result(id)? {
            return Ok(JobView::Ended(Box::new(result)));
        }
        // Another process may have it.
        let line = self.shared.runner.store().line(id)?.ok_or_else(JobError::not_found)?;
        let (job_id, status) = (line.job_id, line.status);
        let (queued_at, started_at) = (line.queued_at, line.started_at);
        Ok(JobView::Live(LiveJob { job_id, status, queued_at, started_at }))
    }

    fn list(&self, asked: &ListAsked) -> Result<JobPage, JobError> {
        let ListAsked { status, limit, cursor } = asked;
        let (jobs, next_cursor) =
            self.shared.runner.store().list(*status, *limit, cursor.as_deref())?;
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
        let file = self.shared.runner.store().open_artifact(id, &path)?;
        Ok(OpenArtifact { file, bytes, sha256 })
    }

    fn cancel(&self, id: &JobId) -> Result<Submitted, JobError> {
        if let Some(live) = self.shared.live(id) {
            let status = self.shared.end(id, &live);
            return Ok(Submitted { job_id: id.clone(), status });
        }
        let store = self.shared.runner.store();
        let line = store.line(id)?.ok_or_else(JobError::not_found)?;
        if line.status.is_terminal() {
            let error = JobError::new(ErrorCode::JobConflict, "the job is over");
            return Err(error.with("status", line.status.word()));
        }
        store.request_cancel(id)?;
        Ok(Submitted { job_id: line.job_id, status: line.status })
    }

    fn follow(&self, id: &JobId) -> Result<Feed, JobError> {
        let live = self.shared.live(id);
        let store = self.shared.runner.store();
        let status = match &live {
            Some(_) => JobStatus::Running,
            None => store.line(id)?.ok_or_else(JobError::not_found)?.status,
        };
        let (stdout, stderr) =
            (store.open_stream(id, Stream::Stdout)?, store.open_stream(id, Stream::Stderr)?);
        let progress = match live {
            Some(live) => live.control.progress().subscribe(),
            None => {
                let bytes = |file: &std::fs::File| file.metadata().map(|found| found.len());
                let read = |error| cannot("read output", &error);
                let stdout_bytes = bytes(&stdout).map_err(read)?;
                let stderr_bytes = bytes(&stderr).map_err(read)?;
                watch::channel(Progress { status, stdout_bytes, stderr_bytes }).1
            }
        };
        Ok(Feed { stdout, stderr, progress })
    }

    fn figures(&self) -> JobFigures {
        self.shared.figures()
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
        self.shared.end_unrun(queued, Ending::interrupted);
    }

    fn wait_idle(&self, deadline: Deadline) -> bool {
        let jobs = self.shared.jobs();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(jobs, deadline.remaining(), |jobs| !jobs.is_idle());
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}
