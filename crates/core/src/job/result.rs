//! The result of a job.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::Sha256;
use super::error::{ErrorCode, JobError};
use super::id::JobId;
use super::policy::Network;
use super::request::Trace;
use super::status::JobStatus;
use super::stream_record::StreamRecord;
use crate::egress::EgressRecord;

/// The result of a finished job. It never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunJobResult {
    /// The job's id.
    pub job_id: JobId,
    /// How it ended.
    pub status: JobStatus,
    /// The request's `trace`.
    pub trace: Trace,
    /// The command that was, or would have been, executed.
    pub command: CommandEcho,
    /// The program's exit code; null if a signal, the time limit or a cancel ended it, or nothing
    /// ran.
    pub exit_code: Option<u8>,
    /// The number of the signal that ended the program; null if none did.
    pub signal: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: StreamRecord,
    /// What it wrote to stderr.
    pub stderr: StreamRecord,
    /// The requested files that the program left, by path.
    pub artifacts: Vec<Artifact>,
    /// Matching files that were not kept.
    pub artifacts_omitted: Vec<OmittedArtifact>,
    /// What the workspace held at the start; null if there was none.
    pub snapshot: Option<SnapshotSummary>,
    /// The decision of the policy.
    pub policy: PolicyDecision,
    /// What the program asked to reach, and what became of it.
    #[serde(default)]
    pub egress: Vec<EgressRecord>,
    /// The resources it used; null if nothing ran.
    pub usage: Option<JobUsage>,
    /// The controls that were enforced, each with its mechanism.
    pub enforced: BTreeMap<String, serde_json::Value>,
    /// The controls that the host lacks, with the reasons.
    pub not_enforced: Vec<String>,
    /// Hashes to compare with another run of the same job.
    pub replay: ReplayHashes,
    /// When the job was accepted, started and finished.
    pub timing: Timing,
    /// The error; null for a completed job.
    pub error: Option<JobError>,
    /// The fields that were cut to fit `limits.record_bytes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_recorded: Vec<String>,
}

/// The resources that a run used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobUsage {
    /// Time from the program's exec to its end, milliseconds.
    pub wall_ms: u64,
    /// CPU time of all its processes, milliseconds.
    pub cpu_ms: u64,
    /// Peak memory, bytes.
    pub memory_peak_bytes: u64,
    /// The source of `memory_peak_bytes`: `cgroup2`, `cgroup1` or `rusage`.
    pub memory_peak_source: String,
    /// Peak number of processes and threads; null without a pids controller.
    pub processes_peak: Option<u64>,
    /// Processes that the OOM killer killed; null if no controller counts them. A run can survive
    /// an OOM kill of one of its children.
    #[serde(default)]
    pub oom_kills: Option<u64>,
    /// Bytes written to stdout, kept or not.
    pub stdout_bytes: u64,
    /// Bytes written to stderr, kept or not.
    pub stderr_bytes: u64,
}

/// The command that was executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandEcho {
    /// `command.argv` of the request.
    pub argv: Vec<String>,
    /// `command.cwd` of the request.
    pub cwd: String,
    /// The executable that was found; null if none was searched or found.
    pub executable: Option<Executable>,
}

/// The executable of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Executable {
    /// Its path in the sandbox, links resolved.
    pub path: String,
    /// The digest of its contents.
    pub sha256: Sha256,
}

/// A file that the program left and that was kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// Its path, relative to the workspace.
    pub path: String,
    /// Size of the kept part, bytes.
    pub bytes: u64,
    /// The digest of the kept part.
    pub sha256: Sha256,
    /// Its location in the store, a `file://` URI.
    pub uri: String,
    /// Whether the file was longer than the kept part.
    pub truncated: bool,
}

/// A file that matched but was not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OmittedArtifact {
    /// Its path; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Why.
    pub reason: OmittedReason,
}

/// Why a file was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OmittedReason {
    /// A link, a fifo, a socket or a device.
    NotARegularFile,
    /// It matches `policy.artifacts.deny`.
    Denied,
    /// It has the name of a secret.
    Secret,
    /// Its path is not UTF-8.
    NotText,
    /// `limits.artifact_count` was reached.
    CountLimit,
    /// `limits.artifact_total_bytes` was reached.
    TotalLimit,
    /// The tree is too large to search completely.
    TreeLimit,
    /// It could not be read.
    Unreadable,
}

/// The part of the source that was copied into the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotSummary {
    /// Regular files and links.
    pub files: u64,
    /// Size of the files' contents, bytes.
    pub bytes: u64,
    /// The number of entries left out, by rule. A directory counts once.
    pub excluded: ExcludedCounts,
}

/// The number of entries left out, by group. Groups without entries are absent.
pub type ExcludedCounts = BTreeMap<ExcludedGroup, u64>;

/// Why an entry of the source was not copied.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ExcludedGroup {
    /// Version control.
    Vcs,
    /// A virtual environment.
    Virtualenv,
    /// Build output.
    Build,
    /// Installed dependencies.
    Dependencies,
    /// A tool's cache.
    Caches,
    /// A file with the name of a secret.
    Secrets,
    /// A fifo, a socket, a device or a mount point.
    Special,
    /// A link that leads out of the workspace.
    OutsideLink,
    /// An entry that `include` does not match or `exclude` matches.
    Request,
}

/// The decision of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyDecision {
    /// Whether the job may run.
    pub decision: Decision,
    /// The reasons of a denial, or warnings: `dangerous_env:LD_PRELOAD`.
    pub reasons: Vec<String>,
    /// A hash of the rules and of everything that was allowed.
    pub version: String,
    /// The requested network.
    pub network: Network,
    /// Whether the program had exactly that network.
    pub network_enforced: bool,
}

impl PolicyDecision {
    /// Denies what the rules allow, for the reason `code`.
    pub fn deny(&mut self, code: ErrorCode) {
        self.decision = Decision::Denied;
        self.reasons.insert(0, code.word().to_owned());
    }
}

/// Whether a job may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The job may run.
    Allowed,
    /// The job may not run.
    Denied,
}

/// Version-tagged hashes without times, job ids and paths of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayHashes {
    /// The hash of the request.
    pub request: String,
    /// The hash of the workspace at the start; null if there was none.
    pub snapshot: Option<String>,
    /// The hash of the result.
    pub result: String,
}

/// Times of a job, RFC 3339 in UTC with milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// When it was accepted.
    pub queued_at: String,
    /// When a worker started it; null if none did.
    pub started_at: Option<String>,
    /// When it finished.
    pub finished_at: String,
    /// Time from start to finish, milliseconds.
    pub duration_ms: u64,
}
