//! The saved workspaces and snapshots of a service, opened when they are first needed.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::bell::ReaperBell;
use super::parked::ParkedWorkspace;
use super::save_queue::SaveQueue;
use crate::config::TokenName;
use crate::workspace::disk::LazyEngineDir;
use crate::workspace::disk::saved::{SavedKind, SavedRecord, SavedStore};
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::service::counts::EngineCounts;
use crate::workspace::service::merge_queue::{LayerRelease, MergeQueue};
use crate::workspace::service::registry::{ChangeGuard, Kept, Registry};
use crate::workspace::service::tally::Tally;
use crate::workspace::trees::snapshots::{Snapshot, SnapshotFiles, SnapshotTable};
use cofferdam_core::values::deadline::Deadline;

/// What a service keeps over its end.
#[derive(Debug)]
pub struct Keeper {
    /// None: the service keeps nothing.
    pub directory: Option<Arc<LazyEngineDir>>,
    /// How long a parked workspace is kept.
    pub keep: Duration,
    /// The workspaces.
    pub registry: Arc<Registry>,
    /// The snapshots.
    pub snapshots: Arc<SnapshotTable>,
    /// Counts the snapshots.
    pub snapshot_count: Arc<Tally>,
    /// Where layers are offered for merging.
    pub merges: Arc<MergeQueue>,
    /// What is to be saved or parked.
    pub saves: Arc<SaveQueue>,
    /// Wakes the reaper.
    pub bell: Arc<ReaperBell>,
    /// Counts ends and saves.
    pub counts: Arc<EngineCounts>,
    /// The store, once it is open.
    pub opened: OpenedStore,
}

/// The store, once it is open.
#[derive(Debug, Default)]
pub struct OpenedStore {
    store: OnceLock<Arc<SavedStore>>,
    opening: Mutex<()>,
    /// When saves in progress are to end.
    stops_at: Mutex<Option<Deadline>>,
}

impl Keeper {
    /// Opens what an earlier service has kept, if there is anything. A directory that another service owns
    /// is left alone.
    pub fn open_if_present(&self) {
        let Some(directory) = &self.directory else { return };
        let is_there = |name| directory.path().join(name).is_dir();
        if !is_there("workspaces") && !is_there("snapshots") {
            return;
        }
        if let Err(error) = self.store() {
            log::warn!("workspaces and snapshots that are kept cannot be used: {error}");
        }
    }

    /// The store. When it is opened, the workspaces and snapshots in it are known from then on.
    ///
    /// # Errors
    /// The service keeps nothing, the directory cannot be used, or another service owns it.
    pub fn store(&self) -> Result<&Arc<SavedStore>, EngineError> {
        if let Some(store) = self.opened.store.get() {
            return Ok(store);
        }
        // Held by the one that opens it; a panic of that leaves it closed.
        let _opening = self.opened.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = self.opened.store.get() {
            return Ok(store);
        }
        let directory = self.directory.as_ref().ok_or_else(|| {
            EngineError::new(EngineCode::EngineClosed, "this service keeps no workspaces")
        })?;
        let (store, [workspaces, snapshots]) = SavedStore::open(directory.get()?)?;
        for record in workspaces {
            self.registry.insert_parked(ParkedWorkspace::new(self.registry.next_number(), record));
        }
        for record in snapshots {
            self.snapshots.insert(Arc::new(self.kept_snapshot(record)));
        }
        self.bell.expect(Instant::now());
        Ok(self.opened.store.get_or_init(|| Arc::new(store)))
    }

    fn kept_snapshot(&self, record: SavedRecord) -> Snapshot {
        let owner = TokenName::from(record.owner.as_str());
        let taken = SnapshotFiles { frozen: None, is_kept: true, mounts: record.mounts() };
        Snapshot {
            id: record.id,
            created_at: record.created_at,
            digest: record.digest,
            files: record.files,
            bytes: record.bytes,
            source: record.settings,
            staged: record.staged,
            taken,
            // There can be more than there may be now.
            _entry: self.snapshot_count.enter(&owner).ok(),
            owner,
            _release: LayerRelease(Arc::clone(&self.merges)),
        }
    }

    /// Removes parked workspaces that were unused for so long. Returns when the next one is.
    pub fn expire(&self) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for parked in self.registry.parked() {
            let left = parked.record.left(self.keep);
            if !left.is_zero() {
                let at = Deadline::after(left).instant();
                next = Some(next.map_or(at, |next| next.min(at)));
                continue;
            }
            let Some(guard) =
                self.registry.begin_change(parked.number, Deadline::after(Duration::ZERO))
            else {
                continue;
            };
            let Some(Kept::Parked(parked)) = self.registry.kept(parked.number) else { continue };
            if let Err(error) = self.forget(&parked, &guard) {
                log::error!(workspace_id = parked.record.id; "an expired workspace stays: {error}");
            }
        }
        next
    }

    /// Removes a parked workspace for good.
    ///
    /// # Errors
    /// Its files cannot be removed. It stays then.
    pub fn forget(
        &self,
        parked: &ParkedWorkspace,
        _guard: &ChangeGuard<'_>,
    ) -> Result<(), EngineError> {
        self.store()?.remove(SavedKind::Workspace, &parked.record.id)?;
        self.registry.remove_parked(parked);
        Ok(())
    }

    /// Ends saves in progress at `deadline`.
    pub fn stop_at(&self, deadline: Deadline) {
        *self.opened.stops_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline);
    }

    /// The end of `wait` from now, or when saves in progress are to end if that is earlier.
    pub fn within(&self, wait: Duration) -> Deadline {
        let stops_at = self.opened.stops_at.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Deadline::after(wait);
        stops_at.map_or(deadline, |stops_at| stops_at.min(deadline))
    }

    /// Whether saves in progress are to end.
    pub fn is_stopped(&self) -> bool {
        let stops_at = self.opened.stops_at.lock().unwrap_or_else(PoisonError::into_inner);
        stops_at.is_some_and(Deadline::passed)
    }
}
