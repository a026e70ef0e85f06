//! A workspace in an answer.

use serde::Serialize;

use crate::workspace::error::EngineError;
use crate::workspace::request::{ArtifactSession, ProgramLimits, SandboxScope, StorageKind};
use crate::workspace::service::live::LiveWorkspace;
use cofferdam_core::values::utc::rfc3339;
use cofferdam_sandbox::engine::DiskUsage;

/// Whether a workspace is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceStatus {
    /// It is.
    Active,
    /// It is in the store, until it is used.
    Parked,
}

impl WorkspaceStatus {
    /// The status of that name.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "active" => Some(Self::Active),
            "parked" => Some(Self::Parked),
            _ => None,
        }
    }
}

/// A workspace, keys in the order of the contract.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkspaceView {
    workspace_id: String,
    exec_id: Option<String>,
    acquire: bool,
    sandbox: SandboxScope,
    path: String,
    /// None: programs have no network.
    network: Option<()>,
    policy: PolicyView,
    max_inodes: u64,
    limits: ProgramLimits,
    /// Names only.
    env: Vec<String>,
    ttl_ms: u64,
    idle_ms: u64,
    /// The snapshot that it was made of.
    snapshot: Option<String>,
    artifact_session: Option<ArtifactSession>,
    status: WorkspaceStatus,
    created_at: String,
    last_access: String,
    expires_at: Option<String>,
    saved_at: Option<String>,
    disk: DiskView,
    runs: usize,
    sessions: usize,
    contexts: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct PolicyView {
    isolated: bool,
    persist: bool,
    storage: StorageKind,
    max_disk_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct DiskView {
    limit_bytes: u64,
    used_bytes: u64,
    limit_inodes: u64,
    used_inodes: u64,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkspacePage {
    /// The workspaces, the newest first.
    pub workspaces: Vec<WorkspaceView>,
    /// The cursor of the next page; null at the end.
    pub next_cursor: Option<String>,
}

/// The answer of a cleanup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CleanupView {
    /// The workspace that is gone.
    pub workspace_id: String,
    /// Whether the store has it.
    pub persisted: bool,
}

impl WorkspaceView {
    /// The id of the workspace.
    pub fn workspace_id(&self) -> &str {
        &self.workspace_id
    }

    /// Where sandboxes show it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The workspace as it is now.
    ///
    /// # Errors
    /// Its file system cannot be measured.
    pub fn of(workspace: &LiveWorkspace) -> Result<Self, EngineError> {
        let (settings, facts) = (&workspace.settings, workspace.facts());
        let DiskUsage { used_bytes, limit_bytes, used_inodes, limit_inodes } = workspace.usage()?;
        Ok(Self {
            workspace_id: workspace.id.clone(),
            exec_id: settings.exec_id.clone(),
            acquire: settings.acquire,
            sandbox: settings.sandbox,
            path: settings.path.as_path().display().to_string(),
            network: None,
            policy: PolicyView {
                isolated: true,
                persist: false,
                storage: settings.storage,
                max_disk_bytes: settings.disk_bytes,
            },
            max_inodes: settings.inodes,
            limits: settings.limits,
            env: settings.env.keys().cloned().collect(),
            ttl_ms: milliseconds(facts.ttl),
            idle_ms: milliseconds(facts.idle),
            snapshot: settings.snapshot.clone(),
            artifact_session: settings.artifact_session.clone(),
            status: WorkspaceStatus::Active,
            created_at: rfc3339(workspace.created_at),
            last_access: rfc3339(facts.last_access),
            expires_at: Some(rfc3339(facts.expires_at)),
            saved_at: None,
            disk: DiskView { limit_bytes, used_bytes, limit_inodes, used_inodes },
            runs: facts.programs,
            sessions: workspace.sessions.count(),
            contexts: workspace.contexts.count(),
        })
    }
}

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
