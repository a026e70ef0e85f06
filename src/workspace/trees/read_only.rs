//! Read-only trees that workspaces share: each is kept once while a workspace or a snapshot shows it.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use nix::sys::stat::fstat;

use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::files::error::engine_error;
use crate::workspace::service::ledger::DiskCharge;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_sandbox::engine::{DiskSpace, ReadOnlyTree, ReadOnlyTreeDraft};
use cofferdam_tree::files::{DirectoryDigest, DirectorySource, fill_read_only};
use cofferdam_tree::{StopCheck, TreeLimits, digest_tree};

/// The most trees that are kept at once.
const TREES_MAX: usize = 1024;
/// The largest tree. What is used is measured and charged before it is made.
pub(super) const TREE_ROOM: DiskSpace = DiskSpace { bytes: 4 << 30, inodes: 200_000 };
/// Bytes of a page, to which each file is rounded up.
const PAGE_BYTES: u64 = 4096;

/// The trees that are kept now, by what they hold.
#[derive(Debug, Default)]
pub struct ReadOnlyTrees {
    index: Mutex<TreeIndex>,
    /// Notified when a tree has been made, or that has failed.
    made: Condvar,
}

#[derive(Debug, Default)]
struct TreeIndex {
    trees: HashMap<TreeKey, (Weak<ReadOnlyTree>, DirectoryDigest)>,
    /// The trees that are being made.
    making: BTreeSet<TreeKey>,
}

/// What makes a tree the same as another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TreeKey {
    /// It is the stored skill with this digest.
    Skill(String),
    /// Its entries have this digest, and it has this mode. The digest that clients see leaves out modes and links: by
    /// it, a client could give another one its own links.
    Content([u8; 32], u32),
}

/// A tree that is kept.
#[derive(Debug, Clone)]
pub struct KeptTree {
    /// The files.
    pub tree: Arc<ReadOnlyTree>,
    /// Their digest.
    pub digest: DirectoryDigest,
}

/// What a search for a tree finds.
#[derive(Debug)]
pub enum FoundTree<'a> {
    /// The tree.
    Kept(KeptTree),
    /// None: the caller makes it, and others wait until the turn is dropped.
    Turn(MakingTurn<'a>),
    /// Another makes it, and takes too long.
    TimedOut,
}

/// The right to make a tree.
#[derive(Debug)]
pub struct MakingTurn<'a> {
    trees: &'a ReadOnlyTrees,
    key: TreeKey,
}

impl Drop for MakingTurn<'_> {
    fn drop(&mut self) {
        self.trees.lock().making.remove(&self.key);
        self.trees.made.notify_all();
    }
}

impl ReadOnlyTrees {
    /// The tree of a stored skill, or the right to make it. Waits until `deadline` for another that makes it; if that
    /// fails, this caller may.
    pub fn find_skill(&self, digest: &str, deadline: Deadline) -> FoundTree<'_> {
        let key = TreeKey::Skill(digest.to_owned());
        let mut index = self.lock();
        loop {
            if let Some(kept) = index.find(&key) {
                return FoundTree::Kept(kept);
            }
            if index.making.insert(key.clone()) {
                return FoundTree::Turn(MakingTurn { trees: self, key });
            }
            let left = deadline.remaining();
            if left.is_zero() {
                return FoundTree::TimedOut;
            }
            let waited = self.made.wait_timeout(index, left);
            index = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes a tree of `source` in `draft`, and keeps it for `skill`, if that is its digest, or for its contents. One
    /// that is kept already takes its place. `charge` is for its bytes, until it is freed.
    ///
    /// # Errors
    /// So much cannot be charged, there are too many trees, or the source cannot be copied.
    pub fn make(
        &self,
        draft: ReadOnlyTreeDraft,
        source: DirectorySource<'_>,
        mut charge: DiskCharge,
        skill: Option<&str>,
    ) -> Result<KeptTree, EngineError> {
        let (path, target) = (Path::new("."), draft.directory());
        let DiskSpace { bytes, inodes } = TREE_ROOM;
        let limits = TreeLimits { bytes_max: bytes, entries_max: inodes, ..TreeLimits::default() };
        let contents = source.measure(target, &limits, path).map_err(engine_error)?;
        let files_bytes = contents.files.saturating_add(1).saturating_mul(PAGE_BYTES);
        charge.set(contents.bytes.saturating_add(files_bytes))?;
        // A directory of the host may grow meanwhile.
        let limits = TreeLimits { bytes_max: contents.bytes, ..limits };
        let digest = fill_read_only(target, source, &limits, path).map_err(engine_error)?;
        let key = match skill {
            Some(skill) if skill == digest.digest => TreeKey::Skill(skill.to_owned()),
            Some(_) => return Err(unmountable("the stored skill has changed")),
            None => content_key(&draft)?,
        };
        charge.correct(draft.used().map_err(layer_error)?.bytes);
        let mut index = self.lock();
        if let Some(kept) = index.find(&key) {
            return Ok(kept);
        }
        index.trees.retain(|_, (tree, _)| tree.strong_count() > 0);
        if index.trees.len() >= TREES_MAX {
            return Err(unmountable("there are too many read-only trees"));
        }
        let tree = draft.finish(Retained::of(Arc::new(charge))).map_err(layer_error)?;
        let kept = KeptTree { tree: Arc::new(tree), digest };
        index.trees.insert(key, (Arc::downgrade(&kept.tree), kept.digest.clone()));
        Ok(kept)
    }

    fn lock(&self) -> MutexGuard<'_, TreeIndex> {
        // Each change leaves the index consistent.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TreeIndex {
    fn find(&self, key: &TreeKey) -> Option<KeptTree> {
        let (tree, digest) = self.trees.get(key)?;
        Some(KeptTree { tree: tree.upgrade()?, digest: digest.clone() })
    }
}

fn content_key(draft: &ReadOnlyTreeDraft) -> Result<TreeKey, EngineError> {
    let digest = digest_tree(draft.directory(), None, StopCheck::never());
    let digest = digest.map_err(|error| unmountable(&error.to_string()))?;
    let stat = fstat(draft.directory()).map_err(|errno| unmountable(errno.desc()))?;
    Ok(TreeKey::Content(digest.sha256, stat.st_mode))
}

pub(super) fn layer_error(error: impl std::fmt::Display) -> EngineError {
    unmountable(&error.to_string())
}

/// The error for which a tree is copied instead. No client sees it.
pub(super) fn unmountable(words: &str) -> EngineError {
    EngineError::new(EngineCode::SandboxFailed, words)
}
