//! The request for a job.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::id::JobId;
use super::limits::JobLimits;
use super::policy::PolicyRequest;

/// Values that the caller wants back in the result: `trace_id`, `task_id`, `agent_id`,
/// `workspace_id` and others. Cofferdam does not interpret them.
pub type Trace = BTreeMap<String, Value>;

/// A request to run one program in a private copy of a directory. Unknown keys are refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunJobRequest {
    /// The job's id; `job_` and a UUID if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Copied to the result.
    #[serde(default)]
    pub trace: Trace,
    /// The directory that is copied.
    pub workspace: WorkspaceRequest,
    /// The program to run in it.
    pub command: CommandRequest,
    /// What the program may be, receive and leave.
    #[serde(default)]
    pub policy: PolicyRequest,
    /// The limits of the job.
    #[serde(default)]
    pub limits: JobLimits,
    /// The backend that runs it.
    #[serde(default)]
    pub backend: Backend,
}

/// The directory that is copied into the workspace. Version control, virtual environments, builds, dependencies,
/// caches and secrets are never copied, whatever is included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceRequest {
    /// The kind of source.
    pub source: WorkspaceSource,
    /// The absolute path of the directory on the host. It is only read.
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// Patterns of the entries to copy, anchored at the top of the directory.
    #[serde(default = "everything")]
    pub include: Vec<String>,
    /// Patterns of the entries not to copy.
    #[serde(default)]
    pub exclude: Vec<String>,
}

/// The kind of source that a workspace is copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceSource {
    /// A directory on the host.
    LocalPath,
}

/// The program to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// The program and its arguments. It is never interpreted by a shell.
    #[schemars(length(min = 1))]
    pub argv: Vec<String>,
    /// The working directory, relative to the workspace.
    #[serde(default = "here")]
    pub cwd: String,
    /// The whole environment, as far as the policy allows it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Standard input.
    #[serde(default)]
    pub stdin: String,
}

/// The backend that runs a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Backend {
    /// Its name.
    pub kind: BackendKind,
}

/// The name of a backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackendKind {
    /// A sandbox on this host.
    #[default]
    LocalProcess,
    /// A sandbox in its own virtual machine.
    Firecracker,
}

impl BackendKind {
    /// Its name in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::LocalProcess => "local_process",
            Self::Firecracker => "firecracker",
        }
    }
}

fn everything() -> Vec<String> {
    vec!["**".to_owned()]
}

fn here() -> String {
    ".".to_owned()
}
