//! The code executor engine: workspaces that last, and what runs in them.

pub mod artifacts;
mod disk;
mod error;
pub mod execute;
pub mod files;
pub mod helpers;
pub mod kernels;
mod request;
mod run;
mod service;
pub mod sessions;
mod trees;
mod view;

pub use disk::{EngineDir, LazyEngineDir, SkillStore, StoreQuota, StoreReservation, StoredSkill};
pub use error::{EngineCode, EngineError};
pub use request::{
    ArtifactSession, CreateRequest, LimitsRequest, PatchRequest, ProgramLimits, SandboxScope,
    SnapshotRequest, StorageKind, WorkspacePolicy, WorkspaceSettings, decode, encode,
};
pub use run::{PreparedRun, ProgramReport, RunRequest};
pub use service::live::{LiveWorkspace, WorkspaceUse};
pub use service::{
    EngineMetrics, EngineSettings, ExecutionCall, WorkspaceQuery, WorkspaceService, memory_bytes,
};
pub use trees::snapshots::{SnapshotPage, SnapshotView};
pub use trees::{
    ForkKind, FrozenTree, HostTrees, LastingSandbox, TreeMaker, TreeSandbox, TreeSettings,
    TreeUsage, WorkspaceTree,
};
pub use view::{
    CleanupView, EgressPage, EngineCapabilities, EngineView, ProcessView, WorkspacePage,
    WorkspaceStatus, WorkspaceView,
};
