//! A workspace in an answer.

use std::time::SystemTime;

use serde::Serialize;

use crate::workspace::error::EngineError;
use crate::workspace::request::{
    ArtifactSession, ProgramLimits, SandboxScope, StorageKind, WorkspaceSettings,
};
use crate::workspace::service::ends::parked::ParkedWorkspace;
use crate::workspace::service::live::LiveWorkspace;
use crate::workspace::service::registry::Kept;
use cofferdam_core::NetworkObject;
use cofferdam_core::egress::EgressRecord;
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
    /// The status of a workspace.
    pub fn of(kept: &Kept) -> Self {
        match kept {
            Kept::Live(_) => Self::Active,
            Kept::Parked(_) => Self::Parked,
        }
    }

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
    /// What programs may reach; none if they have no network.
    network: Option<NetworkObject>,
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

/// A page of what the programs of a workspace asked to reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EgressPage {
    /// The records, in their order.
    pub egress: Vec<EgressRecord>,
    /// The cursor of the next page; null at the end.
    pub next_cursor: Option<String>,
}

/// The answer of a cleanup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CleanupView {
    /// The workspace that is gone, or parked.
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
            ttl_ms: milliseconds(facts.ttl),
            idle_ms: milliseconds(facts.idle),
            network: workspace.network.object(),
            status: WorkspaceStatus::Active,
            created_at: rfc3339(workspace.created_at),
            last_access: rfc3339(facts.last_access),
            expires_at: Some(rfc3339(facts.expires_at)),
            saved_at: facts.saved_at.map(rfc3339),
            disk: DiskView { limit_bytes, used_bytes, limit_inodes, used_inodes },
            runs: facts.programs,
            sessions: workspace.sessions.count(),
            contexts: workspace.contexts.count(),
            ..Self::of_settings(&workspace.id, settings)
        })
    }

    /// A parked workspace, which has no end of its own.
    pub fn of_parked(ParkedWorkspace { record, .. }: &ParkedWorkspace) -> Self {
        let settings = &record.settings;
        Self {
            status: WorkspaceStatus::Parked,
            created_at: rfc3339(record.created_at),
            last_access: rfc3339(record.last_access),
            saved_at: Some(rfc3339(record.saved_at)),
            disk: DiskView {
                limit_bytes: settings.disk_bytes,
                used_bytes: record.used.bytes,
                limit_inodes: settings.inodes,
                used_inodes: record.used.inodes,
            },
            ..Self::of_settings(&record.id, settings)
        }
    }

    /// A workspace, live or parked.
    ///
    /// # Errors
    /// Its file system cannot be measured.
    pub fn of_kept(kept: &Kept) -> Result<Self, EngineError> {
        match kept {
            Kept::Live(live) => Self::of(live),
            Kept::Parked(parked) => Ok(Self::of_parked(parked)),
        }
    }

    /// What a workspace was created with.
    fn of_settings(id: &str, settings: &WorkspaceSettings) -> Self {
        Self {
            workspace_id: id.to_owned(),
            exec_id: settings.exec_id.clone(),
            acquire: settings.acquire,
            sandbox: settings.sandbox,
            path: settings.path.as_path().display().to_string(),
            network: settings.network.clone(),
            policy: PolicyView {
                isolated: true,
                persist: settings.persist,
                storage: settings.storage,
                max_disk_bytes: settings.disk_bytes,
            },
            max_inodes: settings.inodes,
            limits: settings.limits,
            env: settings.env.keys().cloned().collect(),
            ttl_ms: milliseconds(settings.ttl),
            idle_ms: milliseconds(settings.idle),
            snapshot: settings.snapshot.clone(),
            artifact_session: settings.artifact_session.clone(),
            status: WorkspaceStatus::Active,
            created_at: String::new(),
            last_access: String::new(),
            expires_at: None,
            saved_at: None,
            disk: DiskView { limit_bytes: 0, used_bytes: 0, limit_inodes: 0, used_inodes: 0 },
            runs: 0,
            sessions: 0,
            contexts: 0,
        }
    }
}

/// When a workspace was saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SavedView {
    /// The moment whose files it holds.
    pub saved_at: String,
}

impl SavedView {
    /// The view of a save of the files of `saved_at`.
    pub fn of(saved_at: SystemTime) -> Self {
        Self { saved_at: rfc3339(saved_at) }
    }
}

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
