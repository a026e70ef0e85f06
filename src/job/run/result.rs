//! What is known of a job, gathered on its way, and the record it becomes.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use serde_json::Value;

use crate::executor::Capabilities;
use crate::job::outcome::JobOutcome;
use crate::store::{request_hash, result_hash, snapshot_hash};
use cofferdam_core::job::{
    Artifact, CommandEcho, Executable, JobId, JobUsage, Network, OmittedArtifact, PolicyDecision,
    ReplayHashes, RunJobRequest, RunJobResult, SnapshotSummary, StreamRecord, Timing,
};
use cofferdam_core::values::utc::rfc3339;
use cofferdam_core::{Enforced, Usage};

/// When a job was taken and begun.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// When it was taken.
    pub queued_at: SystemTime,
    /// When a worker began, if one did.
    pub began: Option<(SystemTime, Instant)>,
}

/// What was found out so far.
#[derive(Debug)]
pub struct ResultBuilder {
    /// What the policy said.
    pub decision: PolicyDecision,
    /// The file of the command.
    pub executable: Option<Executable>,
    /// What was copied, and its digest.
    pub snapshot: Option<(SnapshotSummary, String)>,
    /// What it wrote.
    pub stdout: StreamRecord,
    /// What it wrote.
    pub stderr: StreamRecord,
    /// What it left.
    pub artifacts: Vec<Artifact>,
    /// What of that was not kept.
    pub omitted: Vec<OmittedArtifact>,
    /// What else was not, and is in no list.
    pub omitted_beyond: u64,
    /// What it used.
    pub usage: Option<JobUsage>,
    /// Under which controls it ran.
    pub enforced: BTreeMap<String, Value>,
    /// Those it ran without.
    pub not_enforced: Vec<String>,
}

impl ResultBuilder {
    /// Of a job of which only the policy's word is known.
    pub fn new(decision: PolicyDecision) -> Self {
        Self {
            decision,
            executable: None,
            snapshot: None,
            stdout: StreamRecord::empty(),
            stderr: StreamRecord::empty(),
            artifacts: Vec::new(),
            omitted: Vec::new(),
            omitted_beyond: 0,
            usage: None,
            enforced: BTreeMap::new(),
            not_enforced: Vec::new(),
        }
    }

    /// Notes what `backend` holds the job to.
    pub fn runs_on(&mut self, backend: Capabilities) {
        self.enforced = words(&backend.enforced);
        self.not_enforced = backend.not_enforced;
    }

    /// Notes what a run had and used.
    pub fn ran(&mut self, enforced: &Enforced, not_enforced: Vec<String>, usage: &Usage) {
        let asked = self.decision.network;
        self.decision.network_enforced =
            asked == Network::None && enforced.namespaces.contains(&"net");
        self.enforced = words(enforced);
        self.not_enforced = not_enforced;
        self.usage = Some(JobUsage {
            wall_ms: usage.wall_ms,
            cpu_ms: usage.cpu_ms,
            memory_peak_bytes: usage.memory_peak_bytes,
            memory_peak_source: usage.memory_peak_source.to_owned(),
            processes_peak: usage.processes_peak,
            oom_kills: usage.oom_kills,
            stdout_bytes: usage.stdout_bytes,
            stderr_bytes: usage.stderr_bytes,
        });
    }

    /// The record of a job that ended so, now.
    pub fn build(
        self,
        id: JobId,
        request: &RunJobRequest,
        ending: JobOutcome,
        times: Times,
    ) -> RunJobResult {
        let (snapshot, digest) = self.snapshot.unzip();
        let mut not_recorded = Vec::new();
        if self.omitted_beyond > 0 {
            not_recorded.push(format!("artifacts_omitted: {} more", self.omitted_beyond));
        }
        let mut result = RunJobResult {
            job_id: id,
            status: ending.status,
            trace: request.trace.clone(),
            command: CommandEcho {
                argv: request.command.argv.clone(),
                cwd: request.command.cwd.clone(),
                executable: self.executable,
            },
            exit_code: ending.exit_code,
            signal: ending.signal,
            stdout: self.stdout,
            stderr: self.stderr,
            artifacts: self.artifacts,
            artifacts_omitted: self.omitted,
            snapshot,
            policy: self.decision,
            usage: self.usage,
            enforced: self.enforced,
            not_enforced: self.not_enforced,
            replay: ReplayHashes {
                request: request_hash(request),
                snapshot: digest.map(|digest| snapshot_hash(&digest)),
                result: String::new(),
            },
            timing: times.until_now(),
            error: ending.error,
            not_recorded,
        };
        result.replay.result = result_hash(&result);
        result
    }
}

impl Times {
    fn until_now(self) -> Timing {
        let lasted = self.began.map(|(_, began)| began.elapsed()).unwrap_or_default();
        Timing {
            queued_at: rfc3339(self.queued_at),
            started_at: self.began.map(|(at, _)| rfc3339(at)),
            finished_at: rfc3339(SystemTime::now()),
            duration_ms: u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// The controls by name, those that are missing left out.
fn words(enforced: &Enforced) -> BTreeMap<String, Value> {
    // What cannot be written as JSON does not exist among our types.
    let value = serde_json::to_value(enforced).unwrap_or_default();
    let Value::Object(words) = value else { return BTreeMap::new() };
    words.into_iter().filter(|(_, by)| !by.is_null()).collect()
}
