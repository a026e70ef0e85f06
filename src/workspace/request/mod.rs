//! Requests of the engine: their bodies, and what they mean with the defaults filled in.

mod create;
mod encoding;
mod limits;
mod shown_path;

pub use create::{
    ArtifactSession, CreateRequest, PatchRequest, SandboxScope, SnapshotRequest, StorageKind,
    WorkspacePolicy, WorkspaceSettings, check_env, check_label, check_network, check_room,
};
pub use encoding::{decode, encode};
pub use limits::{LimitsRequest, ProgramLimits, pick};
