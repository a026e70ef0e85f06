//! What this host can do for layers, tried and never inferred.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, renameat};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, unlinkat};

use super::error::LayerError;
use super::ids::{IdMapping, WorkspaceIds};
use super::mounts::layer::{DetachedLayer, Layer, Place};
use super::mounts::read_only::ReadOnlyTreeDraft;
use super::mounts::stage::Stage;
use super::mounts::view::{View, ViewPlan};
use super::space::LEAST_ROOM;
use crate::launch::unprivileged;
use crate::plan::input::INSIDE_ID;
use crate::pool::host_id::HostId;
use cofferdam_core::SetupFailure;
use cofferdam_core::sync::retained::Retained;

/// What this host can do for layers; what it cannot, with the reason.
#[derive(Debug, Clone)]
pub struct LayerFeatures {
    /// Forks are overlays over what they share; otherwise they are copies.
    pub overlay: Result<(), String>,
    /// Each workspace has a host id of its own; otherwise the forks of one ancestor share one.
    pub id_maps: Result<(), String>,
    /// All ids of a workspace are mapped; otherwise only 0 and 10001.
    pub id_ranges: Result<(), String>,
    /// Workspaces can share read-only trees.
    pub read_only_trees: Result<(), String>,
    pub(super) mapping: IdMapping,
    /// Inodes of an overlay's upper layer that are not entries: directories, and room of attributes.
    pub(super) upper_own_inodes: u64,
    /// Whether overlays keep their marks in attributes that need no privileges.
    pub(super) user_attributes: bool,
}

impl LayerFeatures {
    /// Tries everything, with files that belong to `host_id`.
    pub(super) fn probe(stage: &Arc<Stage>, host_id: &HostId) -> Result<Self, LayerError> {
        let mut found = Self::probe_overlays(stage, host_id)?;
        if found.overlay.is_ok() && !found.user_attributes {
            let ids = WorkspaceIds::new(host_id, found.mapping);
            let tried = ids.and_then(|ids| try_read_only_tree(stage, &ids));
            found.read_only_trees = tried.map_err(|error| error.to_string());
        }
        Ok(found)
    }

    fn probe_overlays(stage: &Arc<Stage>, host_id: &HostId) -> Result<Self, LayerError> {
        let user_attributes = unprivileged::is_active()?;
        let attempt = |mapping, overlay| {
            let ids = WorkspaceIds::new(host_id, mapping);
            let tried =
                ids.and_then(|ids| try_view(stage, &ids, mapping, overlay, user_attributes));
            tried.map_err(|error| error.to_string())
        };
        let plain = |mapping| attempt(mapping, false).map(drop);
        let without = Err("no privileges here: files belong to the service's own uid".to_owned());
        let range = if user_attributes { without } else { plain(IdMapping::Range) };
        let two = match &range {
            Err(_) if !user_attributes => plain(IdMapping::Two),
            range => range.clone(),
        };
        let mapping = match (&range, &two) {
            (Ok(()), _) => IdMapping::Range,
            (_, Ok(())) => IdMapping::Two,
            _ => IdMapping::Same,
        };
        let overlay = attempt(mapping, true);
        let found = Self {
            upper_own_inodes: overlay.clone().unwrap_or(0),
            overlay: overlay.map(drop),
            id_maps: two,
            id_ranges: range,
            read_only_trees: Err("there are no overlays".to_owned()),
            mapping,
            user_attributes,
        };
        if found.overlay.is_ok() || mapping == IdMapping::Same {
            return Ok(found);
        }
        // An overlay may not take layers with mapped ids.
        match attempt(IdMapping::Same, true) {
            Ok(upper_own_inodes) => Ok(Self {
                upper_own_inodes,
                overlay: Ok(()),
                id_maps: found.overlay.clone(),
                id_ranges: found.overlay,
                read_only_trees: found.read_only_trees,
                mapping: IdMapping::Same,
                user_attributes,
            }),
            Err(_) => Ok(found),
        }
    }
}

/// Makes a view of one layer, or an overlay, and checks what matters of it. Returns the inodes of an
/// overlay's upper layer without entries.
fn try_view(
    stage: &Arc<Stage>,
    ids: &WorkspaceIds,
    mapping: IdMapping,
    overlay: bool,
    user_attributes: bool,
) -> Result<u64, LayerError> {
    let layer = |place| DetachedLayer::in_memory(LEAST_ROOM, place)?.attach(stage);
    let (bottom, top) = (layer(Place::Bottom)?, layer(Place::Above { own_inodes: 0 })?);
    let plan = |top: &Layer, frozen: Vec<String>| ViewPlan {
        top: Some(top.path().to_owned()),
        frozen,
        trees: Vec::new(),
        ids: ids.namespace().cloned(),
        user_attributes,
    };
    let view = View::mount(stage, plan(&bottom, Vec::new()))?;
    make_owned(view.root(), c"d", ids.host_id())?;
    make_owned(view.root(), c"d/inner", ids.host_id())?;
    let on_disk = bottom.open_entries()?;
    let owner = fstatat(&on_disk, c"d", AtFlags::AT_SYMLINK_NOFOLLOW);
    let owner = owner.map_err(LayerError::of_errno("stat in layer"))?.st_uid;
    let expected = if mapping == IdMapping::Same { ids.host_id().id() } else { INSIDE_ID };
    require(owner == expected, "map ids", "the owner on disk is another one")?;
    drop((view, on_disk));
    if !overlay {
        return Ok(0);
    }
    bottom.freeze()?;
    let view = View::mount(stage, plan(&top, vec![bottom.path().to_owned()]))?;
    let used = top.used(view.root())?;
    try_overlay(view.root())?;
    Ok(used.inodes)
}

/// Replaces a directory that lies below.
fn try_overlay(root: BorrowedFd<'_>) -> Result<(), LayerError> {
    let of = LayerError::of_errno;
    let remove = |name| unlinkat(root, name, UnlinkatFlags::RemoveDir);
    remove(c"d/inner").and_then(|()| remove(c"d")).map_err(of("remove in overlay"))?;
    mkdirat(root, c"d", Mode::S_IRWXU).map_err(of("make in overlay"))?;
    let inner = fstatat(root, c"d/inner", AtFlags::AT_SYMLINK_NOFOLLOW).map(drop);
    require(inner == Err(Errno::ENOENT), "overlay", "it shows what was removed")
}

/// Shows a read-only tree, and gives its directory another name.
fn try_read_only_tree(stage: &Arc<Stage>, ids: &WorkspaceIds) -> Result<(), LayerError> {
    let layer = |place| DetachedLayer::in_memory(LEAST_ROOM, place)?.attach(stage);
    let draft = ReadOnlyTreeDraft::new(layer(Place::Bottom)?)?;
    let make = |at: BorrowedFd<'_>, name| {
        mkdirat(at, name, Mode::S_IRWXU).map_err(LayerError::of_errno("make directory"))
    };
    make(draft.directory(), c"inner")?;
    let tree = draft.finish(Retained::default())?;
    let top = layer(Place::Above { own_inodes: 0 })?;
    make(top.open_entries()?.as_fd(), c"d")?;
    tree.mark(&top, "d".as_ref())?;
    let plan = ViewPlan {
        top: Some(top.path().to_owned()),
        frozen: Vec::new(),
        trees: vec![tree.stage_path().to_owned()],
        ids: ids.namespace().cloned(),
        user_attributes: false,
    };
    let view = View::mount(stage, plan)?;
    renameat(view.root(), c"d", view.root(), c"e").map_err(LayerError::of_errno("rename"))?;
    let inner = fstatat(view.root(), c"e/inner", AtFlags::AT_SYMLINK_NOFOLLOW);
    require(inner.is_ok(), "overlay", "it does not show a directory that lies elsewhere")
}

fn make_owned(
    root: BorrowedFd<'_>,
    name: &std::ffi::CStr,
    owner: &HostId,
) -> Result<(), LayerError> {
    mkdirat(root, name, Mode::S_IRWXU).map_err(LayerError::of_errno("make directory"))?;
    let (uid, gid) = (Uid::from_raw(owner.id()), Gid::from_raw(owner.id()));
    fchownat(root, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)
        .map_err(LayerError::of_errno("chown"))
}

fn require(condition: bool, step: &str, reason: &str) -> Result<(), LayerError> {
    if condition { Ok(()) } else { Err(SetupFailure::from_words(step, reason).into()) }
}
