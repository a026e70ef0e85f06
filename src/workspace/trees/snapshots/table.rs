//! The snapshots of all tokens, by id and owner.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::config::TokenName;
use crate::workspace::disk::saved::SavedMounts;
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::request::WorkspaceSettings;
use crate::workspace::service::merge_queue::LayerRelease;
use crate::workspace::service::tally::TallyEntry;
use crate::workspace::trees::FrozenTree;

/// The files of a workspace at one moment, and what it was created with.
pub struct Snapshot {
    /// Its id.
    pub id: String,
    /// The token that it belongs to.
    pub owner: TokenName,
    /// When the files were as they are in it.
    pub created_at: SystemTime,
    /// The digest of all files.
    pub digest: String,
    /// Regular files.
    pub files: u64,
    /// Bytes of regular files.
    pub bytes: u64,
    /// What its workspace was created with.
    pub source: WorkspaceSettings,
    /// Which versions of artifacts were staged into its workspace.
    pub staged: Vec<(String, u64)>,
    /// The files.
    pub taken: SnapshotFiles,
    /// Counts it.
    pub _entry: Option<TallyEntry>,
    /// Dropped after the files.
    pub _release: LayerRelease,
}

/// Where the files of a snapshot are.
#[derive(Debug, Clone)]
pub struct SnapshotFiles {
    /// In memory; none of a snapshot that an earlier service took.
    pub frozen: Option<Arc<dyn FrozenTree>>,
    /// Whether the store has them.
    pub is_kept: bool,
    /// The read-only trees among those in the store that an earlier service took.
    pub mounts: SavedMounts,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Snapshot").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The snapshots.
#[derive(Debug, Default)]
pub struct SnapshotTable(Mutex<SnapshotIndex>);

#[derive(Debug, Default)]
struct SnapshotIndex {
    /// By their place in the order of creation.
    snapshots: BTreeMap<u64, Arc<Snapshot>>,
    numbers: HashMap<String, u64>,
    next: u64,
}

impl SnapshotTable {
    /// Adds one.
    pub fn insert(&self, snapshot: Arc<Snapshot>) {
        let mut index = self.lock();
        index.next += 1;
        let number = index.next;
        index.numbers.insert(snapshot.id.clone(), number);
        index.snapshots.insert(number, snapshot);
    }

    /// The snapshot `id` of `owner`.
    ///
    /// # Errors
    /// The snapshot does not exist, or belongs to another token.
    pub fn find(&self, owner: &TokenName, id: &str) -> Result<Arc<Snapshot>, EngineError> {
        let index = self.lock();
        let found = index.numbers.get(id).and_then(|number| index.snapshots.get(number));
        found.filter(|snapshot| snapshot.owner == *owner).cloned().ok_or_else(not_found)
    }

    /// Removes the snapshot `id` of `owner`. Forks of it keep their files.
    ///
    /// # Errors
    /// The snapshot does not exist, or belongs to another token.
    pub fn remove(&self, owner: &TokenName, id: &str) -> Result<Arc<Snapshot>, EngineError> {
        let mut index = self.lock();
        let number = index.numbers.get(id).copied().ok_or_else(not_found)?;
        let found = index.snapshots.get(&number).filter(|snapshot| snapshot.owner == *owner);
        let found = found.cloned().ok_or_else(not_found)?;
        index.numbers.remove(id);
        index.snapshots.remove(&number);
        Ok(found)
    }

    /// Up to `limit` snapshots of `owner`, the newest first, that are older than number `before`; and
    /// the number of the last one if there are more.
    pub fn page(
        &self,
        owner: &TokenName,
        before: Option<u64>,
        limit: usize,
    ) -> (Vec<Arc<Snapshot>>, Option<u64>) {
        let index = self.lock();
        let older = index.snapshots.range(..before.unwrap_or(u64::MAX)).rev();
        let mut found = older.filter(|(_, snapshot)| snapshot.owner == *owner);
        let page: Vec<_> = found.by_ref().take(limit).collect();
        let last = page.last().map(|(number, _)| **number);
        let page = page.into_iter().map(|(_, snapshot)| Arc::clone(snapshot)).collect();
        (page, last.filter(|_| found.next().is_some()))
    }

    fn lock(&self) -> MutexGuard<'_, SnapshotIndex> {
        // The indexes are changed together, without a point at which a panic could interrupt them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_found() -> EngineError {
    EngineError::new(EngineCode::SnapshotNotFound, "no such snapshot")
}
