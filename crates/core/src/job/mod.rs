//! An agent's job: its request, its result and its errors, as JSON has them.
//!
//! The library, the command line and the HTTP API all use these types.

mod command;
mod document;
mod error;
mod exclusion;
mod id;
mod limits;
mod policy;
mod request;
mod result;
mod status;
mod stream_record;
mod summary;
mod validate;

pub use command::{AllowedCommand, Sha256};
pub use error::{ErrorCode, JobError};
pub use exclusion::excluded_group;
pub use id::{BadJobId, JobId};
pub use limits::JobLimits;
pub use policy::{ArtifactPatterns, ControlName, Network, PolicyRequest};
pub use request::{
    Backend, BackendKind, CommandRequest, RunJobRequest, Trace, WorkspaceRequest, WorkspaceSource,
};
pub use result::{
    Artifact, CommandEcho, Decision, ExcludedCounts, ExcludedGroup, Executable, JobUsage,
    OmittedArtifact, OmittedReason, PolicyDecision, ReplayHashes, RunJobResult, SnapshotSummary,
    Timing,
};
pub use status::JobStatus;
pub use stream_record::{StreamRecord, TextEncoding};
pub use summary::{Idempotency, JobLine, LiveJob};
pub use validate::{JobRequestError, ValidRequest, parse_request};
