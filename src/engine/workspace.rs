//! Workspaces: made, found by label and ended.

use std::fmt::Debug;
use std::path::PathBuf;

use crate::workspace::{EngineError, WorkspacePolicy};

/// A workspace, as its manager names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// Its id.
    pub id: String,
    /// Where its programs see it. It is no path on the host.
    pub path: PathBuf,
}

/// Makes and ends workspaces.
pub trait WorkspaceManager: Debug + Send + Sync {
    /// Creates a workspace. `exec_id` is a label of up to 256 bytes, or empty.
    ///
    /// # Errors
    /// A value of `policy` is above its maximum, or a limit is reached.
    fn create_workspace(
        &self,
        exec_id: &str,
        policy: WorkspacePolicy,
    ) -> Result<Workspace, EngineError>;

    /// The live workspace with the label `exec_id`, or a new one. Calls at once make one.
    ///
    /// # Errors
    /// The label is empty, or as [`WorkspaceManager::create_workspace`].
    fn acquire_workspace(
        &self,
        exec_id: &str,
        policy: WorkspacePolicy,
    ) -> Result<Workspace, EngineError>;

    /// Kills everything in a workspace and ends it. With `persist` in its policy, the store keeps it.
    ///
    /// # Errors
    /// There is no such workspace.
    fn cleanup(&self, workspace: &Workspace) -> Result<(), EngineError>;
}

/// Finds the workspaces of labels, all of which are made with one policy. Its manager has the labels, so a
/// workspace that has ended is not found again.
#[derive(Debug, Clone, Default)]
pub struct WorkspaceRegistry {
    policy: WorkspacePolicy,
}

/// A registry whose workspaces have the default policy.
pub fn new_workspace_registry() -> WorkspaceRegistry {
    WorkspaceRegistry::default()
}

impl WorkspaceRegistry {
    /// A registry whose workspaces are made with `policy`.
    pub fn with_policy(policy: WorkspacePolicy) -> Self {
        Self { policy }
    }

    /// The live workspace of `manager` with the label `id`, or a new one. A failure is not remembered.
    ///
    /// # Errors
    /// As [`WorkspaceManager::acquire_workspace`].
    pub fn acquire(
        &self,
        manager: &dyn WorkspaceManager,
        id: &str,
    ) -> Result<Workspace, EngineError> {
        manager.acquire_workspace(id, self.policy.clone())
    }
}
