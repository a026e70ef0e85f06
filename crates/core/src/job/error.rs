//! What is told of a job, or of a request for one, that went wrong.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What went wrong, by its code on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ErrorCode {
    /// The request has not the shape of one; `details.path` says where.
    #[serde(rename = "validation.invalid_request")]
    InvalidRequest,
    /// A path of the request leaves the workspace.
    #[serde(rename = "validation.path_escape")]
    PathEscape,
    /// The body is longer than the service takes.
    #[serde(rename = "validation.too_large")]
    TooLarge,
    /// No job of that name.
    #[serde(rename = "job.not_found")]
    JobNotFound,
    /// The name is taken, or the job is not in a state for that.
    #[serde(rename = "job.conflict")]
    JobConflict,
    /// As many jobs wait as may.
    #[serde(rename = "queue.full")]
    QueueFull,
    /// The service takes no new jobs.
    #[serde(rename = "queue.closed")]
    QueueClosed,
    /// A token is needed, and there is none or a wrong one.
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
    /// The workspace is outside the places the service allows.
    #[serde(rename = "policy.workspace_denied")]
    WorkspaceDenied,
    /// A network other than `none` is asked for.
    #[serde(rename = "policy.network_denied")]
    NetworkDenied,
    /// The backend cannot run here, or a control in `require_enforced` is missing.
    #[serde(rename = "backend.unavailable")]
    BackendUnavailable,
    /// The workspace or the box could not be made.
    #[serde(rename = "backend.setup_failed")]
    BackendSetupFailed,
    /// `limits.timeout_ms` was over.
    #[serde(rename = "run.timed_out")]
    TimedOut,
    /// The program is not there, or cannot be executed.
    #[serde(rename = "run.spawn_failed")]
    SpawnFailed,
    /// Reading or writing the run's records failed.
    #[serde(rename = "run.io_failed")]
    IoFailed,
    /// Artifacts could not be collected.
    #[serde(rename = "run.artifact_collection_failed")]
    ArtifactCollectionFailed,
    /// The program ended with another code than 0, or by a signal.
    #[serde(rename = "run.exit_nonzero")]
    ExitNonzero,
    /// A limit other than time ended it; `details.limit` names it.
    #[serde(rename = "run.limit_exceeded")]
    LimitExceeded,
    /// The process that had the job ended without recording a result.
    #[serde(rename = "run.interrupted")]
    Interrupted,
    /// Somebody asked for its end.
    #[serde(rename = "run.canceled")]
    Canceled,
}

/// The one shape of every error: of a refused request, and in a job's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
#[serde(deny_unknown_fields)]
pub struct JobError {
    /// What went wrong.
    pub code: ErrorCode,
    /// In a few words; never a secret's value.
    pub message: String,
    /// Particulars, by name.
    #[serde(default)]
    pub details: Map<String, Value>,
}

impl JobError {
    /// An error without particulars.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
    }

    /// The same with one more particular.
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
    /// Its text on the wire.
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
