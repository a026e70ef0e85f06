//! Errors of the engine, as every interface answers them.

use serde::Serialize;
use serde_json::{Map, Value};

use cofferdam_core::json::JsonFault;

/// Why the engine refuses a request: `{code, message, details}`.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[error("{}: {message}", code.word())]
pub struct EngineError {
    /// What went wrong.
    pub code: EngineCode,
    /// What went wrong, for people.
    pub message: String,
    /// Facts for programs: `path` names the field of a request.
    pub details: Map<String, Value>,
}

impl EngineError {
    /// An error without details.
    pub fn new(code: EngineCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Map::new() }
    }

    /// A wrong value of the request's field `path`.
    pub fn invalid(path: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::new(EngineCode::InvalidRequest, format!("{path}: {message}")).with("path", path)
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}

impl From<JsonFault> for EngineError {
    fn from(fault: JsonFault) -> Self {
        match fault {
            JsonFault::NotJson { .. } => Self::new(EngineCode::NotJson, fault.to_string()),
            JsonFault::Invalid { path, words } => {
                Self::new(EngineCode::InvalidRequest, words).with("path", path)
            }
        }
    }
}

/// Defines the codes with their words and the status of HTTP that each is answered with.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $status:literal $word:literal,)*) => {
        /// What went wrong, by its code in JSON.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        pub enum EngineCode {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl EngineCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code in JSON.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// The status of HTTP.
            pub fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)*
                }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    NotJson = 400 "validation.invalid_request",
    /// The request is malformed; `details.path` says where.
    InvalidRequest = 422 "validation.invalid_request",
    /// A path leaves the workspace.
    PathEscape = 422 "validation.path_escape",
    /// The request is longer than the service accepts.
    TooLarge = 413 "validation.too_large",
    /// An archive holds what may not be unpacked.
    ArchiveUnsafe = 422 "archive.unsafe",
    /// A tree is not the one that its digest names.
    SkillDigestMismatch = 422 "skill.digest_mismatch",
    /// The scheme of an input is not known.
    InputUnsupported = 422 "input.unsupported",
    /// The program cannot be executed.
    SpawnFailed = 422 "run.spawn_failed",
    /// An input from the host is not allowed.
    InputHostDenied = 403 "input.host_denied",
    /// A host is not one that workspaces may reach.
    NetworkDenied = 403 "policy.network_denied",
    /// The request names a secret that its token may not use.
    SecretDenied = 403 "policy.secret_denied",
    /// There is no workspace with that id, or it belongs to another token.
    WorkspaceNotFound = 404 "workspace.not_found",
    /// There is no snapshot with that id.
    SnapshotNotFound = 404 "snapshot.not_found",
    /// There is no session with that id.
    SessionNotFound = 404 "session.not_found",
    /// There is no process with that number.
    ProcessNotFound = 404 "process.not_found",
    /// There is no context with that id.
    ContextNotFound = 404 "context.not_found",
    /// There is no skill with that digest.
    SkillNotFound = 404 "skill.not_found",
    /// There is no file at the path.
    FileNotFound = 404 "file.not_found",
    /// An input is missing.
    InputNotFound = 404 "input.not_found",
    /// There is no artifact with that name.
    ArtifactNotFound = 404 "artifact.not_found",
    /// The artifact has no such version.
    ArtifactVersionNotFound = 404 "artifact.version_not_found",
    /// An `Idempotency-Key` was used for another request, or its request is not answered yet.
    RequestConflict = 409 "request.conflict",
    /// Processes can be listed only in a sandbox of the whole workspace.
    WorkspaceNotShared = 409 "workspace.not_shared",
    /// The program of the session has ended.
    SessionNotRunning = 409 "session.not_running",
    /// The program of the session has not ended.
    SessionRunning = 409 "session.running",
    /// The session's standard input is closed.
    SessionStdinClosed = 409 "session.stdin_closed",
    /// The session has no terminal.
    SessionNoTty = 409 "session.no_tty",
    /// A link is on the way to the path, or leads out of the workspace.
    FileThroughLink = 409 "file.through_link",
    /// The path is no regular file, or no directory, as the request wants it.
    FileNotRegular = 409 "file.not_regular",
    /// There is a file at the path already.
    FileExists = 409 "file.exists",
    /// The path is read-only.
    FileReadOnly = 409 "file.read_only",
    /// The directory is not empty.
    FileNotEmpty = 409 "file.not_empty",
    /// A file that would be saved was cut.
    CollectTruncatedSave = 409 "collect.truncated_save",
    /// The session has 1 MiB of input that its program has not read.
    SessionInputFull = 429 "session.input_full",
    /// 16 calls wait for the context.
    ContextBusy = 429 "context.busy",
    /// The token has as many as it may have.
    TokenLimit = 429 "token.limit",
    /// The workspace, or the service, has as many of them as there may be.
    WorkspaceLimit = 429 "workspace.limit",
    /// The workspace has no room.
    WorkspaceDiskFull = 507 "workspace.disk_full",
    /// The engine's store has no room.
    StoreFull = 507 "store.full",
    /// As many workspaces exist, or as much memory is promised, as there may be.
    WorkspacesFull = 503 "workspaces.full",
    /// As many programs run as may run at once.
    EngineBusy = 503 "engine.busy",
    /// The service ends.
    EngineClosed = 503 "engine.closed",
    /// The host has no storage of that kind.
    StorageUnavailable = 503 "storage.unavailable",
    /// The host cannot give the workspace one sandbox.
    SandboxUnavailable = 503 "sandbox.unavailable",
    /// The workspace could not be copied in time.
    SnapshotUnavailable = 503 "snapshot.unavailable",
    /// The interpreter is not installed.
    LanguageUnavailable = 503 "language.unavailable",
    /// The sandbox could not be created.
    SandboxFailed = 500 "sandbox.failed",
    /// The service could not read or write its files.
    IoFailed = 500 "io.failed",
}
