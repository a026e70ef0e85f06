//! Requests that save and end workspaces, and the end of the service.

use crate::config::TokenName;
use crate::workspace::error::EngineError;
use crate::workspace::service::WorkspaceService;
use crate::workspace::service::live::{WorkspaceEnd, not_found};
use crate::workspace::service::registry::Kept;
use crate::workspace::view::{CleanupView, SavedView};
use cofferdam_core::values::deadline::Deadline;

impl WorkspaceService {
    /// Kills everything in a workspace, and removes or parks it. With `purge`, nothing stays in the store.
    ///
    /// # Errors
    /// There is no such workspace, or it cannot be parked, and lives on.
    pub fn cleanup(
        &self,
        owner: &TokenName,
        id: &str,
        purge: bool,
    ) -> Result<CleanupView, EngineError> {
        let kept = self.reaping.registry.look(owner, id)?;
        let persisted = match kept {
            kept if purge && kept.settings().persist => self.purge(&kept)?,
            Kept::Parked(_) => true,
            Kept::Live(live) if live.settings.persist => {
                let why = WorkspaceEnd::Cleanup;
                self.keeper.park(&live, |live| live.begin_end().then_some(why))?;
                true
            }
            Kept::Live(live) => {
                if !live.begin_end() {
                    return Err(not_found());
                }
                self.reaping.finish(&live, WorkspaceEnd::Cleanup);
                false
            }
        };
        Ok(CleanupView { workspace_id: id.to_owned(), persisted })
    }

    /// Saves a workspace, which is a use of it.
    ///
    /// # Errors
    /// There is no such workspace, it is not kept, or it cannot be saved.
    pub fn save(&self, owner: &TokenName, id: &str) -> Result<SavedView, EngineError> {
        let used = self.enter(owner, id)?;
        if !used.workspace().settings.persist {
            let words = "the workspace was created without it";
            return Err(EngineError::invalid("policy.persist", words));
        }
        self.keeper.save(used.workspace()).map(SavedView::of)
    }

    /// Parks all workspaces that are kept, when the service ends. Those that are not parked by `deadline` are
    /// kept as they were last saved.
    pub fn park_all(&self, deadline: Deadline) {
        self.keeper.stop_at(deadline);
        for live in self.reaping.registry.all() {
            if !live.settings.persist {
                continue;
            }
            if deadline.passed() {
                log::error!(workspace_id = live.id; "no time is left to park a workspace");
                continue;
            }
            let parked =
                self.keeper.park(&live, |live| live.begin_end().then_some(WorkspaceEnd::Drain));
            if let Err(error) = parked {
                log::error!(workspace_id = live.id; "a workspace stays as it was last saved: {error}");
            }
        }
    }
}
