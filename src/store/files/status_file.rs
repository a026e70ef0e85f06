//! `status.json`: where a job is, and what is known of it before its result.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use cofferdam_core::job::{
    Executable, Idempotency, JobId, JobLine, JobStatus, PolicyDecision, RunJobResult,
};
use cofferdam_core::values::utc::rfc3339;

/// What the file holds. Keys that are not known are left by later versions, and read over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StatusFile {
    #[serde(flatten)]
    pub(crate) line: JobLine,
    /// When it was taken, nanoseconds since 1970, by which lists are ordered.
    #[serde(default)]
    pub(crate) order_ns: Option<u64>,
    /// Which opening of the store runs it.
    pub(crate) owner: String,
    /// What its record takes on the disk, once it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// What the policy said, once it did and until it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<PolicyDecision>,
    /// By what a client may ask for the same job again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency: Option<Idempotency>,
    /// What is executed, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) executable: Option<Executable>,
}

impl StatusFile {
    /// Of a job that is taken.
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

    /// Of a job that is over, whose record takes `bytes`.
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

    /// By what lists are ordered.
    pub(crate) fn order(&self) -> u64 {
        let told = || parse_time(&self.line.queued_at).map_or(0, nanoseconds);
        self.order_ns.unwrap_or_else(told)
    }

    /// What is wrong with it, as that of the job `id`.
    pub(crate) fn fault(&self, id: &JobId) -> Option<&'static str> {
        let JobLine { job_id, status, queued_at, started_at, finished_at } = &self.line;
        let is_time = |text: &String| parse_time(text).is_some();
        if job_id != id {
            return Some("of another job");
        }
        if !is_time(queued_at) || ![started_at, finished_at].into_iter().flatten().all(is_time) {
            return Some("a time is none");
        }
        if status.is_terminal() != finished_at.is_some() {
            return Some("its state and its times contradict each other");
        }
        None
    }
}

/// The time that a text in RFC 3339 tells.
pub(crate) fn parse_time(text: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(text).ok()
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
