//! Parked workspaces come back when they are used.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::park::busy;
use super::parked::ParkedWorkspace;
use crate::config::TokenName;
use crate::workspace::disk::saved::{SavedKind, SavedMounts, SavedUsage};
use crate::workspace::error::EngineError;
use crate::workspace::request::StorageKind;
use crate::workspace::service::ledger::DiskCharge;
use crate::workspace::service::live::{WorkspaceEnd, WorkspaceUse, not_found};
use crate::workspace::service::registry::{ChangeGuard, Kept};
use crate::workspace::service::span::Span;
use crate::workspace::service::{WorkspaceService, refusal};
use crate::workspace::trees::{TreeDoors, TreeSettings, WorkspaceTree, mount_again};
use crate::workspace::view::WorkspaceView;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::StopCheck;

/// How long a workspace that is being parked or woken is waited for.
const CHANGE_WAIT: Duration = Duration::from_secs(50);
/// How long the files of a workspace may take to be made again.
const RESTORE_MAX: Duration = Duration::from_secs(50);

impl WorkspaceService {
    /// Begins a request that uses a workspace. One that is parked comes back, with its times anew; requests
    /// for it meanwhile wait.
    ///
    /// # Errors
    /// There is no such workspace, or it cannot come back.
    pub fn enter(&self, owner: &TokenName, id: &str) -> Result<WorkspaceUse, EngineError> {
        let deadline = Deadline::after(CHANGE_WAIT);
        let registry = &self.reaping.registry;
        loop {
            let kept = registry.look(owner, id)?;
            if let Kept::Live(live) = &kept {
                match live.enter() {
                    Err(_) if live.settings.persist && !deadline.passed() => {}
                    entered => return entered,
                }
            }
            // Waits for the thread that parks or wakes it.
            let guard = registry.begin_change(kept.number(), deadline).ok_or_else(busy)?;
            if let Some(Kept::Parked(parked)) = registry.kept(kept.number()) {
                self.wake(&parked, &guard)?;
            }
        }
    }

    /// Makes the files of a parked workspace again, and lets it live.
    fn wake(&self, parked: &ParkedWorkspace, _guard: &ChangeGuard<'_>) -> Result<(), EngineError> {
        self.check_open()?;
        let span = Span::begin("workspace.create");
        let ParkedWorkspace { number, owner, record } = parked;
        let settings = record.settings.clone();
        let store = self.keeper.store()?;
        let entry = self.workspaces.enter(owner).map_err(|full| refusal(full, "workspaces"))?;
        let mut charge = self.ledger.open(owner, settings.storage == StorageKind::Memory);
        let mounts = record.mounts();
        charge.set(record.used.bytes.saturating_add(mounts.used.bytes))?;
        let saved = (SavedKind::Workspace, record.id.as_str());
        let tree = self.remake(saved, &mounts, TreeSettings::of(&settings), &charge)?;
        let doors = TreeDoors::new(tree)?;
        charge.correct(doors.usage()?.own_bytes());
        // What is kept from now on is kept because it was used now.
        let mut used_now = record.clone();
        used_now.kept_from = SystemTime::now();
        store.update(SavedKind::Workspace, used_now)?;
        let workspace =
            self.live((record.id.clone(), *number), owner, settings, doors, (charge, entry));
        workspace.staged.replace_all(&record.staged);
        let workspace = Arc::new(workspace.woken(record.created_at, record.saved_at));
        span.end_create(&workspace.id, &workspace.settings);
        self.reaping.registry.insert(Arc::clone(&workspace));
        self.reaping.bell.expect(workspace.ends_at());
        Ok(())
    }

    /// Changes how long a parked workspace lives once it is used again.
    pub fn prolong_parked(
        &self,
        parked: &ParkedWorkspace,
        ttl: Option<Duration>,
        idle: Option<Duration>,
    ) -> Result<WorkspaceView, EngineError> {
        let registry = &self.reaping.registry;
        let deadline = Deadline::after(CHANGE_WAIT);
        let _guard = registry.begin_change(parked.number, deadline).ok_or_else(busy)?;
        match registry.kept(parked.number).ok_or_else(not_found)? {
            // It was used meanwhile.
            Kept::Live(live) => {
                live.prolong(ttl, idle)?;
                WorkspaceView::of(&live)
            }
            Kept::Parked(parked) => {
                let mut record = parked.record.clone();
                record.settings.ttl = ttl.unwrap_or(record.settings.ttl);
                record.settings.idle = idle.unwrap_or(record.settings.idle);
                let record = self.keeper.store()?.update(SavedKind::Workspace, record)?;
                let changed = ParkedWorkspace::new(parked.number, record);
                let view = WorkspaceView::of_parked(&changed);
                registry.insert_parked(changed);
                Ok(view)
            }
        }
    }

    /// Removes a workspace that is kept, with what the store has of it. Returns false: nothing is kept.
    pub fn purge(&self, kept: &Kept) -> Result<bool, EngineError> {
        let registry = &self.reaping.registry;
        let deadline = Deadline::after(CHANGE_WAIT);
        let guard = registry.begin_change(kept.number(), deadline).ok_or_else(busy)?;
        match registry.kept(kept.number()).ok_or_else(not_found)? {
            Kept::Parked(parked) => self.keeper.forget(&parked, &guard)?,
            Kept::Live(live) => {
                live.begin_end();
                // A save in progress ends before its files are removed.
                let turn = live.save_turn();
                let removed = self.keeper.store()?.remove(SavedKind::Workspace, &live.id);
                turn.close();
                self.reaping.finish(&live, WorkspaceEnd::Cleanup);
                removed?;
            }
        }
        Ok(false)
    }

    /// Makes saved files in a new tree. The read-only trees among them, `mounts`, are mounted again; until then the tree
    /// has room for copies. One that cannot be mounted now stays a copy, which counts.
    pub fn remake(
        &self,
        (kind, id): (SavedKind, &str),
        mounts: &SavedMounts,
        settings: TreeSettings,
        charge: &DiskCharge,
    ) -> Result<Box<dyn WorkspaceTree>, EngineError> {
        let room = TreeSettings {
            bytes: settings.bytes.saturating_add(mounts.used.bytes),
            inodes: settings.inodes.saturating_add(mounts.used.inodes),
            ..settings
        };
        let mut tree = self.trees.make(room)?;
        let late = Deadline::after(RESTORE_MAX);
        let stop = StopCheck(&|| late.passed());
        self.keeper.store()?.restore(kind, id, (tree.root(), tree.owner()), stop)?;
        for place in &mounts.places {
            if let Err(error) = mount_again(&mut *tree, place, charge.open_shared()) {
                log::warn!("a read-only tree of a saved workspace is a copy now: {error}");
            }
        }
        if mounts.used != SavedUsage::default() {
            tree.limit(settings)?;
        }
        Ok(tree)
    }
}
