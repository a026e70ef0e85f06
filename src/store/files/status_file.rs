//! `status.json`: the state of a job, and what is known before its result.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use cofferdam_core::job::{
    Executable, Idempotency, JobId, JobLine, JobStatus, PolicyDecision, RunJobResult,
};
use cofferdam_core::values::utc::rfc3339;

/// The contents of the file. Unknown keys come from later versions and are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StatusFile {
    #[serde(flatten)]
    pub(crate) line: JobLine,
    /// When the job was accepted, nanoseconds since 1970. Lists are ordered by it.
    #[serde(default)]
    pub(crate) order_ns: Option<u64>,
    /// The opening of the store that runs the job.
    pub(crate) owner: String,
    /// The size of the record on the disk, once the job has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// The decision of the policy, until the job has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<PolicyDecision>,
    /// The `Idempotency-Key` and the digest of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency: Option<Idempotency>,
    /// The program, until the job has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) executable: Option<Executable>,
}

impl StatusFile {
    /// The status of a job that has just been accepted.
    pub(crate) fn queued(id: &JobId, queued_at: SystemTime, owner: &str) -> Self {
        let line = JobLine {
            job_id: id.clone(),
            status: JobStatus::Queued,
            queued_at: rfc3339(queued_at),
            started_at: None,
            finished_at: None,
        };
        let order_ns = Some(nanoseconds(queued_at));
        let owner = owner.to_owned();
        let (policy, executable, idempotency) = (None, None, None);
        Self { line, order_ns, owner, bytes: None, policy, idempotency, executable }
    }

    /// The status of an ended job whose record takes `bytes`.
    pub(crate) fn over(result: &RunJobResult, before: Option<&Self>, bytes: u64) -> Self {
        Self {
            line: JobLine::from(result),
            order_ns: before.and_then(|before| before.order_ns),
            owner: before.map(|before| before.owner.clone()).unwrap_or_default(),
            bytes: Some(bytes),
            policy: None,
            idempotency: before.and_then(|before| before.idempotency.clone()),
            executable: None,
        }
    }

    /// The key by which lists are ordered.
    pub(crate) fn order(&self) -> u64 {
        let told = || parse_time(&self.line.queued_at).map_or(0, nanoseconds);
        self.order_ns.unwrap_or_else(told)
    }

    /// Why this cannot be the status of the job `id`.
    pub(crate) fn fault(&self, id: &JobId) -> Option<&'static str> {
        let JobLine { job_id, status, queued_at, started_at, finished_at } = &self.line;
        let is_time = |text: &String| parse_time(text).is_some();
        if job_id != id {
            return Some("of another job");
        }
        if !is_time(queued_at) || ![started_at, finished_at].into_iter().flatten().all(is_time) {
            return Some("a time is not valid");
        }
        if status.is_terminal() != finished_at.is_some() {
            return Some("its state and its times contradict each other");
        }
        None
    }
}

/// Parses a time in RFC 3339.
pub(crate) fn parse_time(text: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(text).ok()
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
