//! Saves of workspaces that live on.

use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

use super::keeper::Keeper;
use crate::workspace::disk::saved::{SavedKind, SavedMounts, SavedRecord, SavedUsage, Saving};
use crate::workspace::error::EngineError;
use crate::workspace::service::live::{LiveWorkspace, SaveTurn};
use crate::workspace::trees::snapshots::freeze_files;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::StopCheck;

/// How long a save may take. A disk that is slower than this keeps nothing.
const SAVE_MAX: Duration = Duration::from_secs(600);

impl Keeper {
    /// Saves a workspace as it is now. Its files are frozen first, which takes no longer than a snapshot;
    /// they are written out while programs go on.
    ///
    /// # Errors
    /// The files cannot be had in time, the store has no room, or a step failed. The save before holds.
    pub fn save(&self, live: &LiveWorkspace) -> Result<SystemTime, EngineError> {
        let saved = self.try_save(live);
        self.counts.count_save(saved.is_ok());
        saved
    }

    fn try_save(&self, live: &LiveWorkspace) -> Result<SystemTime, EngineError> {
        self.store()?;
        let turn = live.save_turn();
        let changes = live.changes();
        let used = usage_of(live)?;
        let frozen = freeze_files(live)?;
        let saved_at = SystemTime::now();
        let mut record = self.record_of(live, saved_at, used);
        record.mounted = SavedMounts::of(&frozen.mounted());
        let written = frozen.read(&mut |root| self.write(root, record.clone(), &turn).map(drop));
        drop(frozen);
        // The layers of the save are needed no more.
        self.merges.offer(live.number);
        written?;
        live.note_saved(changes, saved_at);
        Ok(saved_at)
    }

    /// Writes the files below `root`, which nothing changes.
    pub(super) fn write(
        &self,
        root: BorrowedFd<'_>,
        record: SavedRecord,
        turn: &SaveTurn<'_>,
    ) -> Result<SavedRecord, EngineError> {
        let late = Deadline::after(SAVE_MAX);
        let stop = || late.passed() || self.is_stopped();
        let saving = Saving { root, life: turn.life()?, stop: StopCheck(&stop) };
        self.store()?.save(SavedKind::Workspace, &saving, record)
    }

    /// The record of a workspace whose files were frozen at `saved_at`.
    pub(super) fn record_of(
        &self,
        live: &LiveWorkspace,
        saved_at: SystemTime,
        used: SavedUsage,
    ) -> SavedRecord {
        let facts = live.facts();
        let mut settings = live.settings.clone();
        (settings.ttl, settings.idle) = (facts.ttl, facts.idle);
        (settings.network, settings.placeholders) = live.network.recorded();
        let name = (live.id.clone(), live.owner.as_str().to_owned());
        let mut record = SavedRecord::new(name, (live.created_at, saved_at), used, settings);
        record.last_access = facts.last_access;
        record.staged = live.staged.all();
        record
    }
}

/// What the files of a workspace use.
pub(super) fn usage_of(live: &LiveWorkspace) -> Result<SavedUsage, EngineError> {
    let usage = live.usage()?;
    Ok(SavedUsage { bytes: usage.used_bytes, inodes: usage.used_inodes })
}
