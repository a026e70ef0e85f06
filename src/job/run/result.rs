//! Builds the result of a job while it runs.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use serde_json::Value;

use crate::executor::Capabilities;
use crate::job::outcome::JobOutcome;
use crate::store::{request_hash, result_hash, snapshot_hash};
use cofferdam_core::egress::EgressRecord;
use cofferdam_core::job::{
    Artifact, CommandEcho, Executable, JobId, JobUsage, Network, OmittedArtifact, PolicyDecision,
    ReplayHashes, RunJobRequest, RunJobResult, SnapshotSummary, StreamRecord, Timing,
};
use cofferdam_core::values::utc::rfc3339;
use cofferdam_core::{Enforced, Usage};

/// When a job was accepted and began.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// When it was accepted.
    pub queued_at: SystemTime,
    /// When a worker began to run it, if one did.
    pub began: Option<(SystemTime, Instant)>,
}

/// What is known of a job so far.
#[derive(Debug)]
pub struct ResultBuilder {
    /// The decision of the policy.
    pub decision: PolicyDecision,
    /// The program.
    pub executable: Option<Executable>,
    /// The snapshot and its digest.
    pub snapshot: Option<(SnapshotSummary, String)>,
    /// The recorded stdout.
    pub stdout: StreamRecord,
    /// The recorded stderr.
    pub stderr: StreamRecord,
    /// The artifacts.
    pub artifacts: Vec<Artifact>,
    /// Artifacts that were not stored, with the reasons.
    pub omitted: Vec<OmittedArtifact>,
    /// How many more were not stored and are not listed.
    pub omitted_beyond: u64,
    /// What it asked to reach.
    pub egress: Vec<EgressRecord>,
    /// The resource usage.
    pub usage: Option<JobUsage>,
    /// The controls of the run.
    pub enforced: BTreeMap<String, Value>,
    /// Missing controls, with the reasons.
    pub not_enforced: Vec<String>,
}

impl ResultBuilder {
    /// A builder that knows only the decision of the policy.
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
            egress: Vec::new(),
            usage: None,
            enforced: BTreeMap::new(),
            not_enforced: Vec::new(),
        }
    }

    /// Records what `backend` enforces.
    pub fn runs_on(&mut self, backend: Capabilities) {
        self.enforced = words(&backend.enforced);
        self.not_enforced = backend.not_enforced;
    }

    /// Records the controls and the usage of a run.
    pub fn ran(&mut self, enforced: &Enforced, not_enforced: Vec<String>, usage: &Usage) {
        self.decision.network_enforced =
            self.decision.network != Network::Host && enforced.namespaces.contains(&"net");
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

    /// Builds the result of a job that has just ended.
    pub fn build(
        self,
        id: JobId,
        request: &RunJobRequest,
        outcome: JobOutcome,
        times: Times,
    ) -> RunJobResult {
        let (snapshot, digest) = self.snapshot.unzip();
        let mut not_recorded = Vec::new();
        if self.omitted_beyond > 0 {
            not_recorded.push(format!("artifacts_omitted: {} more", self.omitted_beyond));
        }
        let mut result = RunJobResult {
            job_id: id,
            status: outcome.status,
            trace: request.trace.clone(),
            command: CommandEcho {
                argv: request.command.argv.clone(),
                cwd: request.command.cwd.clone(),
                executable: self.executable,
            },
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            stdout: self.stdout,
            stderr: self.stderr,
            artifacts: self.artifacts,
            artifacts_omitted: self.omitted,
            snapshot,
            policy: self.decision,
            egress: self.egress,
            usage: self.usage,
            enforced: self.enforced,
            not_enforced: self.not_enforced,
            replay: ReplayHashes {
                request: request_hash(request),
                snapshot: digest.map(|digest| snapshot_hash(&digest)),
                result: String::new(),
            },
            timing: times.until_now(),
            error: outcome.error,
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

/// The enforced controls by name.
fn words(enforced: &Enforced) -> BTreeMap<String, Value> {
    // This type always becomes JSON.
    let value = serde_json::to_value(enforced).unwrap_or_default();
    let Value::Object(words) = value else { return BTreeMap::new() };
    words.into_iter().filter(|(_, by)| !by.is_null()).collect()
}
