//! What is asked for.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::id::JobId;
use super::limits::JobLimits;
use super::policy::PolicyRequest;

/// What the caller wants to find again in the result: `trace_id`, `task_id`, `agent_id`,
/// `workspace_id` and anything else. Nothing here reads it.
pub type Trace = BTreeMap<String, Value>;

/// One program over a private copy of a directory. Unknown keys are refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunJobRequest {
    /// The job's name; `job_` and a UUID where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Told again in the result.
    #[serde(default)]
    pub trace: Trace,
    /// What the workspace is a copy of.
    pub workspace: WorkspaceRequest,
    /// What is executed in it.
    pub command: CommandRequest,
    /// What that may be, get and leave.
    #[serde(default)]
    pub policy: PolicyRequest,
    /// How much it may use.
    #[serde(default)]
    pub limits: JobLimits,
    /// Where it runs.
    #[serde(default)]
    pub backend: Backend,
}

/// What the workspace is a copy of. Version control, virtual environments, builds, dependencies,
/// caches and secrets are never copied, whatever is included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceRequest {
    /// What kind of place it is.
    pub source: WorkspaceSource,
    /// The directory, absolute, of the host. It is only read.
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// Patterns of what is copied, anchored at its top.
    #[serde(default = "everything")]
    pub include: Vec<String>,
    /// Patterns of what is not.
    #[serde(default)]
    pub exclude: Vec<String>,
}

/// What kind of place a workspace is copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceSource {
    /// A directory of the host.
    LocalPath,
}

/// What is executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// The program and its arguments; never a shell's line.
    #[schemars(length(min = 1))]
    pub argv: Vec<String>,
    /// The working directory, relative to the workspace.
    #[serde(default = "here")]
    pub cwd: String,
    /// The whole environment, of what the policy allows; nothing else is in it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Standard input.
    #[serde(default)]
    pub stdin: String,
}

/// Where a job runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Backend {
    /// By its name.
    pub kind: BackendKind,
}

/// The backends there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackendKind {
    /// A box on this host.
    #[default]
    LocalProcess,
    /// A box in a virtual machine of its own.
    Firecracker,
}

impl BackendKind {
    /// Its word on the wire.
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
