//! Mounts read-only trees in workspaces.

use std::os::fd::AsFd;
use std::sync::Arc;

use nix::sys::stat::fstat;

use super::maker::WorkspaceTree;
use super::read_only::{KeptTree, TREE_ROOM, layer_error, unmountable};
use crate::workspace::error::EngineError;
use crate::workspace::files::error::engine_error;
use crate::workspace::service::ledger::DiskCharge;
use cofferdam_sandbox::engine::{MountedTree, ReadOnlyTreeDraft};
use cofferdam_tree::files::{
    DirectorySource, FileLocation, PathRule, StageBatch, WorkspaceRoot, open_read_only,
};

/// The most places of one workspace at which it shows trees.
const MOUNTS_MAX: usize = 64;

/// Room for a tree, in the kind of storage that the workspace `of` has.
///
/// # Errors
/// It cannot be made.
pub fn begin_tree(of: &dyn WorkspaceTree) -> Result<ReadOnlyTreeDraft, EngineError> {
    of.begin_tree(TREE_ROOM)
}

/// Mounts `kept` at `to`, in place of what is there, with what `add` adds to the batch. The caller is in alone, and
/// nothing runs in the workspace.
///
/// # Errors
/// A step failed. Nothing has changed then, or there is an empty directory at `to`.
pub fn mount_at(
    workspace: &mut dyn WorkspaceTree,
    rule: &PathRule,
    to: &FileLocation,
    kept: &KeptTree,
    add: impl FnOnce(&WorkspaceRoot<'_>, &mut StageBatch<'_>) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mounted = workspace.mounted();
    // The kernel knows a directory of a lower layer by one path only.
    if mounted.iter().any(|mounted| Arc::ptr_eq(&mounted.tree, &kept.tree)) {
        return Err(unmountable("the workspace shows the tree already"));
    }
    if mounted.len() >= MOUNTS_MAX {
        return Err(unmountable("the workspace shows too many read-only trees"));
    }
    let directory = kept.tree.open().map_err(layer_error)?;
    let stat = fstat(&directory).map_err(|errno| unmountable(errno.desc()))?;
    let root = WorkspaceRoot { directory: workspace.root(), rule, owner: workspace.owner() };
    let mut batch = StageBatch::new(&root);
    let point = batch.mount_point(to, &stat).map_err(engine_error)?;
    // What can fail comes before anything is replaced.
    workspace.mark(&point, &kept.tree)?;
    add(&root, &mut batch)?;
    batch.install().map_err(engine_error)?;
    workspace.mount(MountedTree { tree: Arc::clone(&kept.tree), path: to.shown() })
}

/// Mounts again what was a read-only tree at `place` when the workspace was saved, and is a copy in it now. Nothing is
/// done if programs have moved it meanwhile.
///
/// # Errors
/// It stays a copy.
pub fn mount_again(
    workspace: &mut dyn WorkspaceTree,
    place: &str,
    charge: DiskCharge,
) -> Result<(), EngineError> {
    let rule = PathRule::default();
    let Some(trees) = workspace.mountable() else { return Ok(()) };
    let root = WorkspaceRoot { directory: workspace.root(), rule: &rule, owner: workspace.owner() };
    let to = root.locate(place).map_err(engine_error)?;
    let Some(copy) = open_read_only(&root, &to).map_err(engine_error)? else { return Ok(()) };
    let source = DirectorySource::Directory(copy.as_fd());
    let kept = trees.make(begin_tree(workspace)?, source, charge, None)?;
    drop(copy);
    mount_at(workspace, &rule, &to, &kept, |_, _| Ok(()))
}
