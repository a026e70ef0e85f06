//! Scripted jobs: a test sets their state and reads the calls they got.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};

use cofferdam::job::{
    JobFeed, JobMetrics, JobPage, JobProgress, JobQuery, JobView, Jobs, OpenArtifact, Submitted,
};
use cofferdam_core::Stream;
use cofferdam_core::job::{
    Artifact, ErrorCode, Idempotency, JobError, JobId, JobLine, JobStatus, LiveJob, RunJobResult,
    Sha256, ValidRequest,
};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::digest::sha256_of;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The current state of one job.
struct Scripted {
    stdout: File,
    stderr: File,
    progress: JobProgress,
    /// `None` after the end of the job.
    sender: Option<watch::Sender<JobProgress>>,
    ended: bool,
    artifacts: Vec<(String, Vec<u8>)>,
}

/// Jobs controlled by a test.
#[derive(Default)]
pub struct ScriptedJobs {
    jobs: Mutex<BTreeMap<String, Scripted>>,
    /// The error for every submission, if any.
    pub refusal: Mutex<Option<JobError>>,
    /// The submissions.
    pub submitted: Mutex<Vec<(ValidRequest, Option<Idempotency>)>>,
    /// The list requests.
    pub listed: Mutex<Vec<JobQuery>>,
    /// A test holds this to block every call.
    pub asking: Mutex<()>,
    /// The metrics to report.
    pub metrics: Mutex<JobMetrics>,
    /// The calls that concern all jobs.
    pub told: Mutex<Vec<&'static str>>,
    /// The bytes by which every artifact overstates its size.
    pub missing_bytes: Mutex<u64>,
}

impl ScriptedJobs {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Adds a waiting job.
    pub fn add(&self, id: &str) {
        let progress = JobProgress { status: JobStatus::Queued, stdout_bytes: 0, stderr_bytes: 0 };
        let file = || tempfile::tempfile().unwrap();
        let sender = Some(watch::channel(progress).0);
        let (stdout, stderr, artifacts) = (file(), file(), Vec::new());
        let job = Scripted { stdout, stderr, progress, sender, ended: false, artifacts };
        self.jobs.lock().unwrap().insert(id.to_owned(), job);
    }

    /// Adds an ended job.
    pub fn add_ended(&self, id: &str, stdout: &[u8], stderr: &[u8]) {
        self.add(id);
        self.write(id, Stream::Stdout, stdout);
        self.write(id, Stream::Stderr, stderr);
        self.end(id, JobStatus::Completed);
    }

    pub fn set_status(&self, id: &str, status: JobStatus) {
        self.change(id, |job| job.progress.status = status);
    }

    pub fn write(&self, id: &str, stream: Stream, bytes: &[u8]) {
        self.change(id, |job| {
            let (mut file, count) = match stream {
                Stream::Stdout => (&job.stdout, &mut job.progress.stdout_bytes),
                Stream::Stderr => (&job.stderr, &mut job.progress.stderr_bytes),
            };
            file.write_all(bytes).unwrap();
            *count += bytes.len() as u64;
        });
    }

    pub fn end(&self, id: &str, status: JobStatus) {
        self.change(id, |job| {
            job.ended = true;
            job.progress.status = status;
        });
        self.lose(id);
    }

    /// Ends the feed of a job without a result.
    pub fn lose(&self, id: &str) {
        self.jobs.lock().unwrap().get_mut(id).unwrap().sender = None;
    }

    pub fn keep(&self, id: &str, path: &str, bytes: &[u8]) {
        self.change(id, |job| job.artifacts.push((path.to_owned(), bytes.to_vec())));
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Scripted)) {
        let mut jobs = self.jobs.lock().unwrap();
        let job = jobs.get_mut(id).unwrap();
        change(job);
        if let Some(sender) = &job.sender {
            sender.send_replace(job.progress);
        }
    }

    fn with<T>(
        &self,
        id: &JobId,
        look: impl FnOnce(&Scripted) -> Result<T, JobError>,
    ) -> Result<T, JobError> {
        drop(self.asking.lock().unwrap());
        let jobs = self.jobs.lock().unwrap();
        look(jobs.get(id.as_str()).ok_or_else(JobError::not_found)?)
    }
}

/// The result of a job that ended with `status`.
pub fn result(id: &str, status: JobStatus) -> RunJobResult {
    serde_json::from_value(result_json(id, status)).unwrap()
}

pub fn result_json(id: &str, status: JobStatus) -> Value {
    let empty = json!({
        "text": "", "truncated": false, "bytes": 0, "sha256": sha256_of(b""), "encoding": "utf-8",
    });
    json!({
        "job_id": id, "status": status, "trace": {"trace_id": "t"},
        "command": {"argv": ["x"], "cwd": ".", "executable": null},
        "exit_code": 0, "signal": null, "stdout": empty, "stderr": empty,
        "artifacts": [], "artifacts_omitted": [], "snapshot": null,
        "policy": {"decision": "allowed", "reasons": [], "version": "v1:x", "network": "none",
                   "network_enforced": true}, "egress": [],
        "usage": null, "enforced": {}, "not_enforced": [],
        "replay": {"request": "v1:a", "snapshot": null, "result": "v1:b"},
        "timing": {"queued_at": "2026-01-02T03:04:05.006Z", "started_at": null,
                   "finished_at": "2026-01-02T03:04:05.007Z", "duration_ms": 1},
        "error": null,
    })
}

const QUEUED_AT: &str = "2026-01-02T03:04:05.006Z";

impl Jobs for ScriptedJobs {
    fn metrics(&self) -> JobMetrics {
        self.metrics.lock().unwrap().clone()
    }

    fn submit(
        &self,
        request: ValidRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Submitted, JobError> {
        drop(self.asking.lock().unwrap());
        let named = request.job_id.clone();
        self.submitted.lock().unwrap().push((request, idempotency));
        if let Some(refusal) = self.refusal.lock().unwrap().clone() {
            return Err(refusal);
        }
        let job_id = named.unwrap_or_else(|| JobId::parse("job_new").unwrap());
        Ok(Submitted { job_id, status: JobStatus::Queued })
    }

    fn view(&self, id: &JobId) -> Result<JobView, JobError> {
        self.with(id, |job| {
            let status = job.progress.status;
            Ok(if job.ended {
                JobView::Ended(Box::new(result(id.as_str(), status)))
            } else {
                let (job_id, queued_at) = (id.clone(), QUEUED_AT.to_owned());
                JobView::Live(LiveJob { job_id, status, queued_at, started_at: None })
            })
        })
    }

    fn list(&self, asked: &JobQuery) -> Result<JobPage, JobError> {
        drop(self.asking.lock().unwrap());
        self.listed.lock().unwrap().push(asked.clone());
        if asked.cursor.as_deref() == Some("stale") {
            return Err(JobError::new(ErrorCode::InvalidRequest, "cursor: not one of ours"));
        }
        let line = |(id, job): (&String, &Scripted)| JobLine {
            job_id: JobId::parse(id).unwrap(),
            status: job.progress.status,
            queued_at: QUEUED_AT.to_owned(),
            started_at: None,
            finished_at: None,
        };
        let jobs = self.jobs.lock().unwrap().iter().map(line).collect();
        Ok(JobPage { jobs, next_cursor: Some("next".to_owned()) })
    }

    fn artifacts(&self, id: &JobId) -> Result<Vec<Artifact>, JobError> {
        self.with(id, |job| {
            if !job.ended {
                return Err(JobError::new(ErrorCode::JobConflict, "the job is not over"));
            }
            let artifact = |(path, bytes): &(String, Vec<u8>)| Artifact {
                path: path.clone(),
                bytes: bytes.len() as u64,
                sha256: Sha256::parse(&sha256_of(bytes)).unwrap(),
                uri: format!("file:///store/{path}"),
                truncated: false,
            };
            Ok(job.artifacts.iter().map(artifact).collect())
        })
    }

    fn open_artifact(&self, id: &JobId, path: &str) -> Result<OpenArtifact, JobError> {
        self.with(id, |job| {
            let kept = job.artifacts.iter().find(|(name, _)| name == path);
            let (_, bytes) =
                kept.ok_or_else(|| JobError::new(ErrorCode::JobNotFound, "no such artifact"))?;
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            let sha256 = Sha256::parse(&sha256_of(bytes)).unwrap();
            let missing = *self.missing_bytes.lock().unwrap();
            Ok(OpenArtifact { file, bytes: bytes.len() as u64 + missing, sha256 })
        })
    }

    fn cancel(&self, id: &JobId) -> Result<Submitted, JobError> {
        self.with(id, |job| match job.ended {
            true => Err(JobError::new(ErrorCode::JobConflict, "the job is over")),
            false => Ok(Submitted { job_id: id.clone(), status: JobStatus::Canceled }),
        })
    }

    fn follow(&self, id: &JobId) -> Result<JobFeed, JobError> {
        self.with(id, |job| {
            let progress = match &job.sender {
                Some(sender) => sender.subscribe(),
                None => watch::channel(job.progress).1,
            };
            let copy = |file: &File| file.try_clone().unwrap();
            Ok(JobFeed { stdout: copy(&job.stdout), stderr: copy(&job.stderr), progress })
        })
    }

    fn start_draining(&self) {
        self.told.lock().unwrap().push("start_draining");
    }

    fn cancel_all(&self) {
        self.told.lock().unwrap().push("cancel_all");
    }

    fn wait_idle(&self, _: Deadline) -> bool {
        self.told.lock().unwrap().push("wait_idle");
        true
    }
}
