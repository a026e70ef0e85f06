//! Errors of jobs and of requests for jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What went wrong, by its code in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ErrorCode {
    /// The request is malformed; `details.path` says where.
    #[serde(rename = "validation.invalid_request")]
    InvalidRequest,
    /// A path of the request leaves the workspace.
    #[serde(rename = "validation.path_escape")]
    PathEscape,
    /// The body is longer than the service accepts.
    #[serde(rename = "validation.too_large")]
    TooLarge,
    /// There is no job with that id.
    #[serde(rename = "job.not_found")]
    JobNotFound,
    /// The id is taken, or the job's state does not allow the operation.
    #[serde(rename = "job.conflict")]
    JobConflict,
    /// The queue has its maximum number of jobs.
    #[serde(rename = "queue.full")]
    QueueFull,
    /// The service accepts no new jobs.
    #[serde(rename = "queue.closed")]
    QueueClosed,
    /// A token is required, and it is missing or wrong.
    #[serde(rename = "auth.required")]
    AuthRequired,
    /// The command is not in `policy.allowed_commands`.
    #[serde(rename = "policy.command_denied")]
    CommandDenied,
    /// The command is, or starts, a shell.
    #[serde(rename = "policy.shell_denied")]
    ShellDenied,
    /// A variable is not allowed; `details.key` names it.
    #[serde(rename = "policy.env_denied")]
    EnvDenied,
    /// A pattern leaves the workspace or asks for secrets.
    #[serde(rename = "policy.artifact_denied")]
    ArtifactDenied,
    /// The workspace is outside the directories that the service allows.
    #[serde(rename = "policy.workspace_denied")]
    WorkspaceDenied,
    /// The request asks for a network other than `none`.
    #[serde(rename = "policy.network_denied")]
    NetworkDenied,
    /// The request names a secret that its token may not use; `details.name` names it.
    #[serde(rename = "policy.secret_denied")]
    SecretDenied,
    /// The backend cannot run here, or a control in `require_enforced` is missing.
    #[serde(rename = "backend.unavailable")]
    BackendUnavailable,
    /// The workspace or the sandbox could not be created.
    #[serde(rename = "backend.setup_failed")]
    BackendSetupFailed,
    /// The job ran longer than `limits.timeout_ms`.
    #[serde(rename = "run.timed_out")]
    TimedOut,
    /// The program does not exist or cannot be executed.
    #[serde(rename = "run.spawn_failed")]
    SpawnFailed,
    /// Reading or writing the run's records failed.
    #[serde(rename = "run.io_failed")]
    IoFailed,
    /// Artifacts could not be collected.
    #[serde(rename = "run.artifact_collection_failed")]
    ArtifactCollectionFailed,
    /// The program exited with a code other than 0, or a signal ended it.
    #[serde(rename = "run.exit_nonzero")]
    ExitNonzero,
    /// A limit other than time ended the program; `details.limit` names it.
    #[serde(rename = "run.limit_exceeded")]
    LimitExceeded,
    /// The process that had the job ended without recording a result.
    #[serde(rename = "run.interrupted")]
    Interrupted,
    /// The job was canceled.
    #[serde(rename = "run.canceled")]
    Canceled,
}

/// An error, both of a refused request and in a job's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
#[serde(deny_unknown_fields)]
pub struct JobError {
    /// What went wrong.
    pub code: ErrorCode,
    /// A short description. It never contains the value of a secret.
    pub message: String,
    /// Further details, by name.
    #[serde(default)]
    pub details: Map<String, Value>,
}

impl JobError {
    /// Creates an error without details.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
    }

    /// Adds a detail.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// The error of a job that does not exist.
    pub fn not_found() -> Self {
        Self::new(ErrorCode::JobNotFound, "no such job")
    }
}

impl ErrorCode {
    /// The code in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::InvalidRequest => "validation.invalid_request",
            Self::PathEscape => "validation.path_escape",
            Self::TooLarge => "validation.too_large",
            Self::JobNotFound => "job.not_found",
            Self::JobConflict => "job.conflict",
            Self::QueueFull => "queue.full",
            Self::QueueClosed => "queue.closed",
            Self::AuthRequired => "auth.required",
            Self::CommandDenied => "policy.command_denied",
            Self::ShellDenied => "policy.shell_denied",
            Self::EnvDenied => "policy.env_denied",
            Self::ArtifactDenied => "policy.artifact_denied",
            Self::WorkspaceDenied => "policy.workspace_denied",
            Self::NetworkDenied => "policy.network_denied",
            Self::SecretDenied => "policy.secret_denied",
            Self::BackendUnavailable => "backend.unavailable",
            Self::BackendSetupFailed => "backend.setup_failed",
            Self::TimedOut => "run.timed_out",
            Self::SpawnFailed => "run.spawn_failed",
            Self::IoFailed => "run.io_failed",
            Self::ArtifactCollectionFailed => "run.artifact_collection_failed",
            Self::ExitNonzero => "run.exit_nonzero",
            Self::LimitExceeded => "run.limit_exceeded",
            Self::Interrupted => "run.interrupted",
            Self::Canceled => "run.canceled",
        }
    }
}
