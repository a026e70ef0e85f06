//! The file system of one workspace.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use nix::fcntl::AtFlags;
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, mkdirat};
use nix::unistd::{Gid, Uid, fchownat};

use super::chain::{self, FrozenChain, FrozenLayer, LayersBelow};
use super::context::LayerContext;
use super::error::LayerError;
use super::ids::WorkspaceIds;
use super::merge::{self, DEPTH_MAX, Source};
use super::mounts::layer::Layer;
use super::mounts::read_only::{self, MountedTree, ReadOnlyTree, ReadOnlyTreeDraft};
use super::mounts::stage;
use super::mounts::view::{View, ViewPlan};
use super::space::{DiskSpace, DiskUsage, LEAST_ROOM, Storage};
use crate::pool::host_id::HostId;
use cofferdam_tree::StopCheck;

/// The directory that sandboxes show at `/workspace`.
const WORKSPACE: &str = "workspace";
/// The directory that sandboxes show at `/tmp`.
const TMP: &str = "tmp";
/// The directories of a new workspace. All of them belong to its host id.
const DIRECTORIES: [(&CStr, u32); 3] =
    [(c"workspace", 0o755), (c"tmp", 0o1777), (c"tmp/home", 0o755)];

/// The mounts for one sandbox of a workspace, attached nowhere. Nosuid, nodev.
#[derive(Debug)]
pub struct WorkspaceMounts {
    /// For `/workspace`.
    pub workspace: OwnedFd,
    /// For `/tmp`.
    pub tmp: OwnedFd,
}

/// A file system with the directories `workspace` and `tmp`, limited in bytes and inodes, that no process
/// sees unless it is handed a clone. Dropping it frees what no fork and no snapshot needs.
#[derive(Debug)]
pub struct WorkspaceFs {
    context: LayerContext,
    /// Dropped before its layers.
    view: View,
    top: Layer,
    /// The oldest first.
    frozen: Vec<Arc<FrozenLayer>>,
    /// The read-only trees, which lie below.
    trees: Vec<MountedTree>,
    ids: WorkspaceIds,
    limit: DiskSpace,
}

impl WorkspaceFs {
    pub(super) fn create(
        context: &LayerContext,
        limit: DiskSpace,
        storage: Storage,
        host_id: &HostId,
    ) -> Result<Self, LayerError> {
        let made = Self::over(context, FrozenChain::default(), limit, storage, host_id)?;
        for (path, mode) in DIRECTORIES {
            made.make_directory(path, Mode::from_bits_truncate(mode))
                .map_err(LayerError::of_errno("make directory of workspace"))?;
        }
        Ok(made)
    }

    pub(super) fn fork(
        context: &LayerContext,
        chain: &FrozenChain,
        limit: DiskSpace,
        storage: Storage,
        host_id: &HostId,
    ) -> Result<Self, LayerError> {
        let host_id = chain.bound_to.as_ref().unwrap_or(host_id);
        if context.features.overlay.is_ok() {
            return Self::over(context, chain.clone(), limit, storage, host_id);
        }
        let room = limit.minus(chain.used());
        if !room.covers(LEAST_ROOM) {
            return Err(LayerError::DiskFull { left: room });
        }
        let made = Self::over(context, FrozenChain::default(), limit, storage, host_id)?;
        made.top.resize(merge::room_for(limit))?;
        for frozen in &chain.layers {
            let source = (&frozen.layer, Source::Kept);
            let nothing = LayersBelow { layers: &[], trees: &[] };
            merge::apply(context, source, &made.top, nothing, StopCheck::never())?;
        }
        made.top.resize(limit)?;
        Ok(made)
    }

    fn over(
        context: &LayerContext,
        chain: FrozenChain,
        limit: DiskSpace,
        storage: Storage,
        host_id: &HostId,
    ) -> Result<Self, LayerError> {
        let FrozenChain { layers: frozen, trees, .. } = chain;
        let room = limit.minus(chain::used(&frozen));
        if !room.covers(LEAST_ROOM) {
            return Err(LayerError::DiskFull { left: room });
        }
        let ids = WorkspaceIds::new(host_id, context.features.mapping)?;
        let (mount, top) =
            context.layer(room, frozen.len() + trees.len(), storage)?.split(&context.stage);
        let plan = plan(context, &ids, &top, (&frozen, &trees));
        let (name, mount_view) = View::prepare(&context.stage, plan);
        let path = top.path().to_owned();
        let root = context.stage.call("mount workspace", move || {
            stage::attach_new(mount, &path)?;
            mount_view()
        })?;
        let view = View::new(name, root);
        Ok(Self { context: context.clone(), view, top, frozen, trees, ids, limit })
    }

    /// The root of the files, with the directories `workspace` and `tmp`. Files here belong to
    /// [`WorkspaceFs::host_id`].
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.view.root()
    }

    /// The host id of its sandboxes.
    pub fn host_id(&self) -> &HostId {
        self.ids.host_id()
    }

    /// What is used of its limits, by all layers together.
    pub fn usage(&self) -> Result<DiskUsage, LayerError> {
        let used = self.used()?;
        Ok(DiskUsage {
            used_bytes: used.bytes,
            limit_bytes: self.limit.bytes,
            used_inodes: used.inodes,
            limit_inodes: self.limit.inodes,
        })
    }

    /// The mounts for one more sandbox.
    pub fn mounts(&self) -> Result<WorkspaceMounts, LayerError> {
        let [workspace, tmp] = self.view.clones([WORKSPACE, TMP])?;
        Ok(WorkspaceMounts { workspace, tmp })
    }

    /// As [`WorkspaceFs::mounts`], with a mount of the directory `name` of the root, which the caller has
    /// made.
    pub fn mounts_with(
        &self,
        name: &'static str,
    ) -> Result<(WorkspaceMounts, OwnedFd), LayerError> {
        let [workspace, tmp, other] = self.view.clones([WORKSPACE, TMP, name])?;
        Ok((WorkspaceMounts { workspace, tmp }, other))
    }

    /// A mount of the directory `name` of the root, which the caller has made.
    pub fn mount_of(&self, name: &'static str) -> Result<OwnedFd, LayerError> {
        let [mount] = self.view.clones([name])?;
        Ok(mount)
    }

    /// Freezes the files as they are, while nothing runs. What is written later goes into a new layer, so
    /// nothing is copied; except where overlays cannot be had, or almost no room is left for that layer.
    ///
    /// # Errors
    /// [`LayerError::Busy`] if a file is open for writing. The workspace goes on as before.
    pub fn freeze(&mut self, stop: StopCheck<'_>) -> Result<FrozenChain, LayerError> {
        let used = self.own_used()?;
        if self.is_unchanged(used) {
            return Ok(self.chain());
        }
        let room = self.limit.minus(chain::used(&self.frozen)).minus(used);
        if self.context.features.overlay.is_err() || !room.covers(LEAST_ROOM) {
            return self.copy_top(stop);
        }
        let top = self.context.layer(room, self.frozen.len() + 1, self.top.storage())?;
        let top = top.attach(&self.context.stage)?;
        self.top.freeze_below(&self.view)?;
        let layer = std::mem::replace(&mut self.top, top);
        self.frozen.push(Arc::new(FrozenLayer::new(layer, used)));
        if let Err(error) = self.show() {
            self.take_back_top();
            return Err(error);
        }
        if self.frozen.len() > DEPTH_MAX {
            let squashed = self.squash(stop);
            // Until there are twice as many, the next time is early enough.
            if self.frozen.len() > 2 * DEPTH_MAX {
                squashed?;
            }
        }
        Ok(self.chain())
    }

    /// Freezes the files as they are, of a workspace that is needed no more and in which nothing runs. Nothing is copied, and
    /// no layer is made for later changes.
    ///
    /// # Errors
    /// As [`WorkspaceFs::freeze`], but the workspace is gone.
    pub fn into_frozen(mut self, stop: StopCheck<'_>) -> Result<FrozenChain, LayerError> {
        let used = self.own_used()?;
        let mut chain = self.chain();
        if self.is_unchanged(used) {
            return Ok(chain);
        }
        self.top.freeze_below(&self.view)?;
        self.view.close()?;
        chain.layers.push(Arc::new(FrozenLayer::new(self.top, used)));
        if chain.layers.len() > DEPTH_MAX {
            let squashed = merge::squash(&self.context, &mut chain.layers, &chain.trees, stop);
            if chain.layers.len() > 2 * DEPTH_MAX {
                squashed?;
            }
        }
        Ok(chain)
    }

    /// Copies what was written since the last time that the files were frozen, while the caller keeps
    /// programs from running. The workspace goes on with its layers as they are.
    pub fn copy_top(&self, stop: StopCheck<'_>) -> Result<FrozenChain, LayerError> {
        let used = self.own_used()?;
        let mut chain = self.chain();
        if !self.is_unchanged(used) {
            let copied = merge::copy(&self.context, (&self.top, used), self.below(), stop)?;
            chain.layers.push(Arc::new(copied));
        }
        Ok(chain)
    }

    /// A new read-only tree with room for `room`, in memory or on disk as the workspace.
    pub fn begin_tree(&self, room: DiskSpace) -> Result<ReadOnlyTreeDraft, LayerError> {
        // The directories above the files.
        let room = DiskSpace { inodes: room.inodes.saturating_add(2), ..room }.plus(LEAST_ROOM);
        let layer = self.context.layer(room, 0, self.top.storage())?.attach(&self.context.stage)?;
        ReadOnlyTreeDraft::new(layer)
    }

    /// Marks the directory at `path` below the root of the files, which is new and empty: it shows `tree` once that is
    /// mounted by [`WorkspaceFs::mount_tree`], under whatever name it has then.
    pub fn mark(&self, path: &Path, tree: &ReadOnlyTree) -> Result<(), LayerError> {
        tree.mark(&self.top, path)
    }

    /// Mounts a tree for the directories that are marked with it, while nothing runs and no file is open. Trees that no
    /// directory shows any more are unmounted.
    ///
    /// # Errors
    /// The workspace shows its files as before; directories that were marked are empty.
    pub fn mount_tree(&mut self, mounted: MountedTree) -> Result<(), LayerError> {
        mounted.tree.reveal(&self.top)?;
        let before = self.trees.clone();
        self.trees.push(mounted);
        let mounted = self.drop_hidden_trees().and_then(|()| self.raise_top());
        mounted.and_then(|()| self.show()).inspect_err(|_| {
            self.trees = before;
            if let Err(error) = self.show() {
                log::error!("show a workspace again: {error}");
            }
        })
    }

    fn drop_hidden_trees(&mut self) -> Result<(), LayerError> {
        let frozen = self.frozen.iter().map(|frozen| &frozen.layer);
        self.trees = read_only::shown_by(&self.trees, frozen.chain([&self.top]))?;
        Ok(())
    }

    /// Changes the limit to `limit`, or to what is used if that is more.
    pub fn set_limit(&mut self, limit: DiskSpace) -> Result<(), LayerError> {
        self.limit = limit;
        self.top.resize(self.room())
    }

    /// Whether there are layers that no snapshot and no fork needs.
    pub fn can_merge(&self) -> bool {
        self.frozen.last().is_some_and(|newest| !is_shared(newest))
    }

    /// Merges the layers that no snapshot and no fork needs, while nothing runs: what was deleted from them
    /// is freed.
    ///
    /// # Errors
    /// Also after an error the workspace shows its files as before.
    pub fn merge(&mut self, stop: StopCheck<'_>) -> Result<(), LayerError> {
        if !self.can_merge() {
            return Ok(());
        }
        let shared = self.frozen.iter().rposition(is_shared).map_or(0, |index| index + 1);
        self.view.close()?;
        let merged = self.merge_above(shared, stop).and_then(|()| self.drop_hidden_trees());
        self.show().and(merged)
    }

    /// Merges all layers but the first `shared` into one, the new top.
    fn merge_above(&mut self, shared: usize, stop: StopCheck<'_>) -> Result<(), LayerError> {
        let below = self.frozen[..shared].to_vec();
        let trees = self.trees.clone();
        let below = LayersBelow { layers: &below, trees: &trees };
        while let [lower, upper, ..] = &self.frozen[shared..] {
            let merged = merge::merge(&self.context, &lower.layer, &upper.layer, below, stop);
            if merged.is_ok() {
                self.frozen.remove(shared + 1);
            }
            self.measure(shared)?;
            merged?;
        }
        let Some(lower) = self.frozen.get(shared) else { return Ok(()) };
        let merged = merge::merge(&self.context, &lower.layer, &self.top, below, stop);
        self.measure(shared)?;
        merged?;
        if let Some(FrozenLayer { layer, .. }) = self.frozen.pop().and_then(Arc::into_inner) {
            self.top = layer;
        }
        self.top.thaw()?;
        self.top.resize(self.room())?;
        self.raise_top()
    }

    /// The room that the frozen layers leave.
    fn room(&self) -> DiskSpace {
        self.limit.minus(chain::used(&self.frozen))
    }

    /// Readies the top layer for a place above read-only trees.
    fn raise_top(&self) -> Result<(), LayerError> {
        if self.trees.is_empty() {
            return Ok(());
        }
        self.top.raise(self.room(), self.context.features.upper_own_inodes)
    }

    fn below(&self) -> LayersBelow<'_> {
        LayersBelow { layers: &self.frozen, trees: &self.trees }
    }

    /// Measures the layers from `first` on, which nothing else needs, and freezes them again.
    fn measure(&mut self, first: usize) -> Result<(), LayerError> {
        for frozen in self.frozen.iter_mut().skip(first).filter_map(Arc::get_mut) {
            let used = frozen.layer.used(frozen.layer.open()?)?;
            if used != frozen.used {
                // It was retained for what the layer used before.
                (frozen.used, frozen.retained) = (used, OnceLock::new());
            }
            frozen.layer.freeze()?;
        }
        Ok(())
    }

    /// Makes one layer of several, so that the overlay does not become too deep.
    fn squash(&mut self, stop: StopCheck<'_>) -> Result<(), LayerError> {
        merge::squash(&self.context, &mut self.frozen, &self.trees, stop)?;
        self.show()
    }

    /// Whether nothing was written, if `used` is what the top layer uses, since the files were frozen.
    fn is_unchanged(&self, used: DiskSpace) -> bool {
        used == DiskSpace::default() && !self.frozen.is_empty()
    }

    /// Makes the newest frozen layer, which nothing shares yet, the top again.
    fn take_back_top(&mut self) {
        let Some(FrozenLayer { layer, .. }) = self.frozen.pop().and_then(Arc::into_inner) else {
            return;
        };
        self.top = layer;
        if let Err(error) = self.top.thaw().and_then(|()| self.show()) {
            log::error!("show a workspace again: {error}");
        }
    }

    /// The entries of the top layer with their owners on disk.
    #[cfg(test)]
    pub(super) fn open_top_entries(&self) -> Result<OwnedFd, LayerError> {
        self.top.open_entries()
    }

    /// Mounts the view of the layers as they are now.
    fn show(&mut self) -> Result<(), LayerError> {
        // A directory cannot be the upper one of an overlay and a lower one of another.
        self.view.close()?;
        let plan = plan(&self.context, &self.ids, &self.top, (&self.frozen, &self.trees));
        self.view = View::mount(&self.context.stage, plan)?;
        Ok(())
    }

    fn used(&self) -> Result<DiskSpace, LayerError> {
        Ok(chain::used(&self.frozen).plus(self.own_used()?))
    }

    /// What was written since the files were frozen: what this workspace shares with no other.
    pub fn own_used(&self) -> Result<DiskSpace, LayerError> {
        self.top.used(self.tree())
    }

    /// The layers that are frozen now.
    pub fn chain(&self) -> FrozenChain {
        let bound = self.ids.namespace().is_none();
        let bound_to = bound.then(|| self.host_id().clone());
        FrozenChain { layers: self.frozen.clone(), trees: self.trees.clone(), bound_to }
    }

    fn make_directory(&self, path: &CStr, mode: Mode) -> nix::Result<()> {
        let id = self.host_id().id();
        mkdirat(self.tree(), path, mode)?;
        // mkdirat applies the umask and drops the sticky bit; fchmodat does neither.
        fchmodat(self.tree(), path, mode, FchmodatFlags::FollowSymlink)?;
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        fchownat(self.tree(), path, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)
    }
}

impl AsFd for WorkspaceFs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tree()
    }
}

fn is_shared(frozen: &Arc<FrozenLayer>) -> bool {
    Arc::strong_count(frozen) > 1
}

/// The view of `top` over `frozen`.
fn plan(
    context: &LayerContext,
    ids: &WorkspaceIds,
    top: &Layer,
    (frozen, trees): (&[Arc<FrozenLayer>], &[MountedTree]),
) -> ViewPlan {
    ViewPlan {
        top: Some(top.path().to_owned()),
        frozen: chain::paths(frozen),
        trees: read_only::stage_paths(trees),
        ids: ids.namespace().cloned(),
        user_attributes: context.features.user_attributes,
    }
}
