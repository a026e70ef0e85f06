//! Parks workspaces: their files go to the store, and their memory is free.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::keeper::Keeper;
use super::parked::ParkedWorkspace;
use super::save::usage_of;
use crate::workspace::disk::saved::{SavedKind, SavedMounts};
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::service::live::{LiveWorkspace, WorkspaceEnd};
use crate::workspace::service::registry::Kept;
use crate::workspace::service::span::Span;
use cofferdam_core::values::deadline::Deadline;

/// How long another change of the same workspace is waited for.
const CHANGE_WAIT: Duration = Duration::from_secs(50);
/// How long killed programs, and requests that use the files, are waited for.
const USES_WAIT: Duration = Duration::from_secs(10);

impl Keeper {
    /// Kills everything in a workspace and parks it, if `begins` says why it ends now. Returns whether it was
    /// parked by this call.
    ///
    /// # Errors
    /// Its files are still being transferred, the store has no room, or a step failed. It lives on then, and
    /// the save before holds.
    pub fn park(
        &self,
        live: &Arc<LiveWorkspace>,
        begins: impl FnOnce(&LiveWorkspace) -> Option<WorkspaceEnd>,
    ) -> Result<bool, EngineError> {
        let guard = self.registry.begin_change(live.number, self.within(CHANGE_WAIT));
        let _guard = guard.ok_or_else(busy)?;
        let is_live = matches!(self.registry.kept(live.number), Some(Kept::Live(known)) if Arc::ptr_eq(&known, live));
        if !is_live {
            return Ok(false);
        }
        let Some(why) = begins(live) else { return Ok(false) };
        let span = Span::begin("workspace.cleanup");
        let parked = self.park_ended(live);
        self.counts.count_save(parked.is_ok());
        match parked {
            Ok(parked) => {
                self.registry.insert_parked(parked);
                self.bell.expect(Deadline::after(self.keep).instant());
                self.counts.count_end(why);
                span.end_cleanup(&live.id, why);
                Ok(true)
            }
            Err(error) => {
                live.resume();
                self.bell.expect(live.ends_at());
                Err(error)
            }
        }
    }

    /// Parks a workspace whose end has begun.
    fn park_ended(&self, live: &LiveWorkspace) -> Result<ParkedWorkspace, EngineError> {
        let store = self.store()?;
        let deadline = self.within(USES_WAIT);
        if !live.wait_programs(deadline) {
            return Err(unavailable("a killed program has not ended"));
        }
        if !live.wait_unused(deadline) {
            return Err(unavailable("files are still being transferred"));
        }
        let turn = live.save_turn();
        let tree = live.doors().enter_alone(deadline);
        let tree = tree.ok_or_else(|| unavailable("files are still being transferred"))?;
        live.doors().measure(&**tree)?;
        let used = usage_of(live)?;
        let now = SystemTime::now();
        let saved_at = live.unchanged_since();
        let mut record = self.record_of(live, saved_at.unwrap_or(now), used);
        record.mounted = SavedMounts::of(&tree.mounted());
        let record = match saved_at {
            // Its files are in the store; its times may have changed.
            Some(_) => {
                record.kept_from = now;
                store.update(SavedKind::Workspace, record)?
            }
            None => self.write(tree.root(), record, &turn)?,
        };
        Ok(ParkedWorkspace::new(live.number, record))
    }
}

/// The error that another change of the workspace takes too long.
pub(super) fn busy() -> EngineError {
    EngineError::new(EngineCode::EngineBusy, "the workspace is being parked or woken")
}

fn unavailable(words: &str) -> EngineError {
    EngineError::new(EngineCode::SnapshotUnavailable, words)
}
