//! What came of a job.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::Sha256;
use super::error::JobError;
use super::id::JobId;
use super::policy::Network;
use super::request::Trace;
use super::status::JobStatus;
use super::stream_record::StreamRecord;

/// What came of a job. It never changes again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunJobResult {
    /// The job's name.
    pub job_id: JobId,
    /// How it ended.
    pub status: JobStatus,
    /// What the request said.
    pub trace: Trace,
    /// What was, or would have been, executed.
    pub command: CommandEcho,
    /// What the program ended with; null where a signal, a time-out or a cancel ended it, or
    /// nothing ran.
    pub exit_code: Option<u8>,
    /// The signal that ended the program, by number; null where none did.
    pub signal: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: StreamRecord,
    /// What it wrote to stderr.
    pub stderr: StreamRecord,
    /// The files it left that were asked for, by path.
    pub artifacts: Vec<Artifact>,
    /// Those that were not kept.
    pub artifacts_omitted: Vec<OmittedArtifact>,
    /// What the workspace was; null where none was made.
    pub snapshot: Option<SnapshotSummary>,
    /// What the policy said.
    pub policy: PolicyDecision,
    /// What it used; null where nothing ran.
    pub usage: Option<JobUsage>,
    /// The controls it ran under, each with the mechanism that held it.
    pub enforced: BTreeMap<String, serde_json::Value>,
    /// Controls the host lacks, with the reasons.
    pub not_enforced: Vec<String>,
    /// What to compare with another run of the same.
    pub replay: ReplayHashes,
    /// When.
    pub timing: Timing,
    /// What went wrong; null for a completed job.
    pub error: Option<JobError>,
    /// What this record leaves out for `limits.record_bytes`, by field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_recorded: Vec<String>,
}

/// What a run used, as every report of this program tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobUsage {
    /// From the program's exec to its end, milliseconds.
    pub wall_ms: u64,
    /// CPU time of all its processes, milliseconds.
    pub cpu_ms: u64,
    /// The most memory it held at once, bytes.
    pub memory_peak_bytes: u64,
    /// Where that figure comes from: `cgroup2`, `cgroup1` or `rusage`.
    pub memory_peak_source: String,
    /// The most processes and threads alive at once, where a controller tells.
    pub processes_peak: Option<u64>,
    /// Processes that the kernel killed for want of memory, where a controller counts them: a run
    /// may survive those of its children.
    #[serde(default)]
    pub oom_kills: Option<u64>,
    /// Bytes written to stdout, kept or not.
    pub stdout_bytes: u64,
    /// Bytes written to stderr, kept or not.
    pub stderr_bytes: u64,
}

/// What was executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandEcho {
    /// As asked for.
    pub argv: Vec<String>,
    /// As asked for.
    pub cwd: String,
    /// The file that was found for it; null where none was looked for or found.
    pub executable: Option<Executable>,
}

/// A file that is executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Executable {
    /// Where it is in the box, links resolved.
    pub path: String,
    /// What it holds.
    pub sha256: Sha256,
}

/// A file the program left, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// Where it was, relative to the workspace.
    pub path: String,
    /// How much is kept, bytes.
    pub bytes: u64,
    /// Of what is kept.
    pub sha256: Sha256,
    /// Where it is kept: a `file://` of the store.
    pub uri: String,
    /// Whether the file was longer.
    pub truncated: bool,
}

/// A file that matched and was not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OmittedArtifact {
    /// Where it was; bytes that are not UTF-8 are replaced.
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
    /// One of `policy.artifacts.deny`.
    Denied,
    /// Its name is one of a secret.
    Secret,
    /// Its path is not UTF-8.
    NotText,
    /// `limits.artifact_count` were kept already.
    CountLimit,
    /// `limits.artifact_total_bytes` were kept already.
    TotalLimit,
    /// The tree is larger than is looked through.
    TreeLimit,
    /// It could not be read.
    Unreadable,
}

/// What of the workspace was copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotSummary {
    /// Regular files and links.
    pub files: u64,
    /// The contents of the files.
    pub bytes: u64,
    /// How many entries were left out, by the rule that did; a directory counts once.
    pub excluded: ExcludedCounts,
}

/// Entries left out, by group; groups that left nothing out are not there.
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
    /// What a build leaves.
    Build,
    /// Installed dependencies.
    Dependencies,
    /// A tool's cache.
    Caches,
    /// A secret, by its name.
    Secrets,
    /// A fifo, a socket, a device or a mount point.
    Special,
    /// A link that leads out of the workspace.
    OutsideLink,
    /// Not among `include`, or one of `exclude`.
    Request,
}

/// What the policy said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyDecision {
    /// Whether it may run.
    pub decision: Decision,
    /// Why not, or what is worth knowing: `dangerous_env:LD_PRELOAD`.
    pub reasons: Vec<String>,
    /// A hash over the rules and everything that was allowed.
    pub version: String,
    /// The network that was asked for.
    pub network: Network,
    /// Whether exactly that network is what the program had.
    pub network_enforced: bool,
}

/// Whether a job may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may.
    Allowed,
    /// It may not.
    Denied,
}

/// Version-tagged hashes, free of times, names of jobs and places on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayHashes {
    /// Of what was asked for.
    pub request: String,
    /// Of what the workspace held; null where none was made.
    pub snapshot: Option<String>,
    /// Of what came of it.
    pub result: String,
}

/// When, RFC 3339 in UTC to the millisecond.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// When it was taken.
    pub queued_at: String,
    /// When a worker began; null where none did.
    pub started_at: Option<String>,
    /// When it was over.
    pub finished_at: String,
    /// From the beginning to the end, milliseconds.
    pub duration_ms: u64,
}
