//! New workspaces, with the files of others or without; and snapshots.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::ledger::DiskCharge;
use super::live::{LiveWorkspace, WorkspaceUse};
use super::merge_queue::LayerRelease;
use super::registry::Acquired;
use super::span::Span;
use super::tally::TallyEntry;
use super::{WorkspaceService, refusal};
use crate::config::TokenName;
use crate::workspace::disk::saved::{SavedKind, SavedMounts, SavedRecord, SavedUsage, Saving};
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::request::{
    CreateRequest, SandboxScope, SnapshotRequest, StorageKind, WorkspaceSettings, check_room,
};
use crate::workspace::trees::snapshots::{
    Snapshot, SnapshotFiles, SnapshotPage, SnapshotView, freeze_files, merge_layers,
};
use crate::workspace::trees::{FrozenTree, TreeDoors, TreeSettings, WorkspaceTree};
use crate::workspace::view::WorkspaceView;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::{StopCheck, TreeDigest};

/// How long an acquire waits for another one with the same label.
const ACQUIRE_WAIT: Duration = Duration::from_secs(20);
/// What a new workspace takes at once, bytes: its directories and records.
const FIRST_BYTES: u64 = 16 << 10;
/// How long a digest may take.
const DIGEST_MAX: Duration = Duration::from_secs(50);
/// How long a snapshot may take to be written to the store.
const KEEP_MAX: Duration = Duration::from_secs(50);
/// How long the deletion of a snapshot merges layers that it shared. The merger does the rest.
const MERGE_MAX: Duration = Duration::from_secs(1);

/// What a new workspace has at first.
#[derive(Debug, Clone, Copy)]
pub enum FirstFiles<'a> {
    /// The directories of every workspace.
    None,
    /// The files of a snapshot.
    Snapshot(&'a Snapshot),
    /// Those that a workspace has then.
    Fork(&'a WorkspaceUse),
}

impl WorkspaceService {
    /// Creates a workspace of `owner` with the files of another, or acquires one. The second value is
    /// whether it is new.
    ///
    /// # Errors
    /// The request is invalid, there is no such workspace, its files cannot be had in time, or a limit
    /// is reached.
    pub fn fork(
        &self,
        owner: &TokenName,
        id: &str,
        request: CreateRequest,
    ) -> Result<(WorkspaceView, bool), EngineError> {
        if request.snapshot.is_some() {
            let words = "a fork has the files of its workspace";
            return Err(EngineError::invalid("snapshot", words));
        }
        let used = self.enter(owner, id)?;
        let source = &used.workspace().settings;
        self.acquire_or_make(owner, request, Some(source), &FirstFiles::Fork(&used))
    }

    /// Keeps the files of a workspace as they are now.
    ///
    /// # Errors
    /// As [`WorkspaceService::fork`].
    pub fn take_snapshot(
        &self,
        owner: &TokenName,
        id: &str,
        request: SnapshotRequest,
    ) -> Result<SnapshotView, EngineError> {
        let is_kept = request.persist.unwrap_or_default();
        if is_kept {
            self.keeper.store()?;
        }
        let used = self.enter(owner, id)?;
        self.check_open()?;
        let entry = self.snapshot_count.enter(owner).map_err(|_| {
            let words = "as many snapshots as there may be";
            EngineError::new(EngineCode::WorkspaceLimit, words)
                .with("limit", "snapshots")
                .with("max", self.snapshot_count.max())
        })?;
        let release = LayerRelease(Arc::clone(self.merger.queue()));
        let frozen = freeze_files(used.workspace())?;
        let created_at = SystemTime::now();
        let (late, live) = (Deadline::after(DIGEST_MAX), used.workspace());
        let digest = frozen.digest(StopCheck(&|| late.passed() || live.is_over()))?;
        let id = format!("snap_{}", Uuid::new_v4().simple());
        if is_kept {
            self.keep_snapshot(&id, live, &*frozen, (created_at, &digest))?;
        }
        let snapshot = Arc::new(Snapshot {
            id,
            owner: owner.clone(),
            created_at,
            digest: digest.hex(),
            files: digest.files,
            bytes: digest.bytes,
            source: live.settings.clone(),
            staged: live.staged.all(),
            taken: SnapshotFiles { frozen: Some(frozen), is_kept, mounts: SavedMounts::default() },
            _entry: Some(entry),
            _release: release,
        });
        let view = SnapshotView::of(&snapshot);
        self.snapshots.insert(snapshot);
        Ok(view)
    }

    /// Writes a snapshot to the store.
    fn keep_snapshot(
        &self,
        id: &str,
        live: &LiveWorkspace,
        frozen: &dyn FrozenTree,
        (created_at, digest): (SystemTime, &TreeDigest),
    ) -> Result<(), EngineError> {
        let usage = live.usage()?;
        let used = SavedUsage { bytes: usage.used_bytes, inodes: usage.used_inodes };
        let name = (id.to_owned(), live.owner.as_str().to_owned());
        let settings = live.settings.clone();
        let mut record = SavedRecord::new(name, (created_at, created_at), used, settings);
        record.digest = digest.hex();
        (record.files, record.bytes) = (digest.files, digest.bytes);
        record.staged = live.staged.all();
        record.mounted = SavedMounts::of(&frozen.mounted());
        let late = Deadline::after(KEEP_MAX);
        let stop = || late.passed() || self.keeper.is_stopped();
        let store = self.keeper.store()?;
        frozen.read(&mut |root| {
            let saving = Saving { root, life: [0; 16], stop: StopCheck(&stop) };
            store.save(SavedKind::Snapshot, &saving, record.clone()).map(drop)
        })
    }

    /// The snapshot `id` of `owner`.
    ///
    /// # Errors
    /// The snapshot does not exist, or belongs to another token.
    pub fn snapshot(&self, owner: &TokenName, id: &str) -> Result<SnapshotView, EngineError> {
        Ok(SnapshotView::of(&*self.snapshots.find(owner, id)?))
    }

    /// Up to `limit` snapshots of `owner` after the end `before` of a page.
    pub fn snapshots(&self, owner: &TokenName, before: Option<u64>, limit: usize) -> SnapshotPage {
        let (found, last) = self.snapshots.page(owner, before, limit);
        SnapshotPage {
            snapshots: found.iter().map(|snapshot| SnapshotView::of(snapshot)).collect(),
            next_cursor: last.map(|number| number.to_string()),
        }
    }

    /// Removes a snapshot. Workspaces that were made of it keep their files.
    ///
    /// # Errors
    /// The snapshot does not exist, or belongs to another token.
    pub fn delete_snapshot(&self, owner: &TokenName, id: &str) -> Result<(), EngineError> {
        let removed = self.snapshots.remove(owner, id)?;
        if removed.taken.is_kept {
            self.keeper.store()?.remove(SavedKind::Snapshot, id)?;
        }
        drop(removed);
        let deadline = Deadline::after(MERGE_MAX);
        for live in self.reaping.registry.all().iter().filter(|live| live.owner == *owner) {
            merge_layers(live, Some(deadline));
        }
        Ok(())
    }

    /// Makes the workspace that `request` means after `source`, or acquires one.
    pub(super) fn acquire_or_make(
        &self,
        owner: &TokenName,
        request: CreateRequest,
        source: Option<&WorkspaceSettings>,
        files: &FirstFiles<'_>,
    ) -> Result<(WorkspaceView, bool), EngineError> {
        let settings = request.resolve(&self.settings.requests, source)?;
        if let Some(network) = &settings.network {
            self.settings.network.check("network.", network, owner.as_str())?;
        }
        self.check_open()?;
        let label = settings.exec_id.clone().filter(|_| settings.acquire);
        let Some(label) = label else { return Ok((self.make(owner, settings, files)?, true)) };
        match self.reaping.registry.acquire(owner, &label, Deadline::after(ACQUIRE_WAIT)) {
            Acquired::Known(kept) => {
                let used = self.enter(owner, kept.id())?;
                Ok((WorkspaceView::of(used.workspace())?, false))
            }
            // The guard lives until the workspace is in the registry, or has failed.
            Acquired::Leader(_guard) => Ok((self.make(owner, settings, files)?, true)),
            Acquired::TimedOut => {
                let words = "the workspace is still being created";
                Err(EngineError::new(EngineCode::EngineBusy, words))
            }
        }
    }

    /// Makes a workspace and adds it to the registry.
    fn make(
        &self,
        owner: &TokenName,
        settings: WorkspaceSettings,
        files: &FirstFiles<'_>,
    ) -> Result<WorkspaceView, EngineError> {
        if settings.sandbox == SandboxScope::Workspace {
            self.trees.check_shared()?;
        }
        let span = Span::begin("workspace.create");
        if settings.persist {
            // What cannot be kept is not made.
            self.keeper.store()?;
        }
        let entry = self.workspaces.enter(owner).map_err(|full| refusal(full, "workspaces"))?;
        let mut charge = self.ledger.open(owner, settings.storage == StorageKind::Memory);
        charge.set(FIRST_BYTES)?;
        let doors = TreeDoors::new(self.make_tree(&settings, files, &mut charge)?)?;
        let usage = doors.usage()?;
        check_room(
            usage.disk.limit_bytes.saturating_sub(usage.disk.used_bytes),
            usage.disk.limit_inodes.saturating_sub(usage.disk.used_inodes),
        )?;
        charge.set(usage.own_bytes())?;
        let registry = &self.reaping.registry;
        let name = (format!("ws_{}", Uuid::new_v4().simple()), registry.next_number());
        let workspace = self.live(name, owner, settings, doors, (charge, entry));
        match files {
            FirstFiles::None => {}
            FirstFiles::Snapshot(snapshot) => workspace.staged.replace_all(&snapshot.staged),
            FirstFiles::Fork(used) => workspace.staged.replace_all(&used.workspace().staged.all()),
        }
        let workspace = Arc::new(workspace);
        let view = WorkspaceView::of(&workspace)?;
        self.reaping.counts.created.increment();
        if !matches!(files, FirstFiles::None) {
            self.reaping.counts.forked.increment();
        }
        let LiveWorkspace { id, settings, .. } = &*workspace;
        span.end_create(id, settings);
        registry.insert(Arc::clone(&workspace));
        workspace.begin_saves();
        self.reaping.bell.expect(workspace.ends_at());
        Ok(view)
    }

    /// A live workspace of this service.
    pub(super) fn live(
        &self,
        name: (String, u64),
        owner: &TokenName,
        settings: WorkspaceSettings,
        doors: TreeDoors,
        account: (DiskCharge, TallyEntry),
    ) -> LiveWorkspace {
        let bell = Arc::clone(&self.reaping.bell);
        let wakes = (bell, Arc::clone(self.merger.queue()), Arc::clone(&self.keeper.saves));
        let network = self.settings.network.clone();
        LiveWorkspace::new(name, owner.clone(), settings, doors, account, wakes, network)
    }

    fn make_tree(
        &self,
        settings: &WorkspaceSettings,
        files: &FirstFiles<'_>,
        charge: &mut DiskCharge,
    ) -> Result<Box<dyn WorkspaceTree>, EngineError> {
        let settings = TreeSettings::of(settings);
        match files {
            FirstFiles::None => self.trees.make(settings),
            FirstFiles::Fork(used) => freeze_files(used.workspace())?.fork(settings),
            FirstFiles::Snapshot(snapshot) => match &snapshot.taken.frozen {
                Some(frozen) => frozen.fork(settings),
                None => {
                    let mounts = &snapshot.taken.mounts;
                    let bytes = settings.bytes.saturating_add(mounts.used.bytes);
                    charge.set(snapshot.bytes.min(bytes))?;
                    self.remake((SavedKind::Snapshot, &snapshot.id), mounts, settings, charge)
                }
            },
        }
    }
}
