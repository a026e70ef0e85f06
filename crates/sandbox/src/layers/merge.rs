//! Makes one layer out of several.

use std::os::fd::AsFd;
use std::sync::Arc;

use nix::sys::stat::{Mode, mkdirat};

use super::chain::{self, FrozenLayer, LayersBelow};
use super::context::LayerContext;
use super::error::LayerError;
use super::frozen_view::FrozenView;
use super::mounts::attributes::AttributeCalls;
use super::mounts::layer::Layer;
use super::mounts::read_only::MountedTree;
use super::space::{DiskSpace, LEAST_ROOM, Storage};
use cofferdam_tree::{
    ApplyOptions, LayerMarks, LayerTarget, StopCheck, WorkspaceError, apply_layer, remove_tree,
};

/// The directory of a layer for files with several names, while another layer is applied to it.
const SCRATCH: &str = "s";

/// Whether a layer that is applied to another loses what it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// It stays as it is.
    Kept,
    /// It is emptied meanwhile, so that no data is in memory twice for long.
    Consumed,
}

/// More layers than these are never left below a top.
pub(super) const DEPTH_MAX: usize = 64;
/// How many of them become one when there are more.
const SQUASHED: usize = 32;

/// Returns a frozen copy of `layer`, whose entries use `used`, for a place above the layers `below`.
pub(super) fn copy(
    context: &LayerContext,
    (layer, used): (&Layer, DiskSpace),
    below: LayersBelow<'_>,
    stop: StopCheck<'_>,
) -> Result<FrozenLayer, LayerError> {
    combine(context, &[layer], used, below, stop)
}

/// Replaces those layers of `frozen` by one that are next to each other and use least together. They may be
/// shared, so they stay as they are.
pub(super) fn squash(
    context: &LayerContext,
    frozen: &mut Vec<Arc<FrozenLayer>>,
    trees: &[MountedTree],
    stop: StopCheck<'_>,
) -> Result<(), LayerError> {
    let windows = frozen.windows(SQUASHED).map(chain::used).enumerate();
    let Some((start, used)) = windows.min_by_key(|(_, used)| used.bytes) else { return Ok(()) };
    let range = start..start + SQUASHED;
    let layers: Vec<&Layer> = frozen[range.clone()].iter().map(|frozen| &frozen.layer).collect();
    let below = LayersBelow { layers: &frozen[..start], trees };
    let combined = combine(context, &layers, used, below, stop)?;
    frozen.splice(range, [Arc::new(combined)]);
    Ok(())
}

/// Applies `upper` to `lower`, which nothing else needs and which lies above the layers `below`: `upper` is
/// then empty. After an error the two together still show the same.
pub(super) fn merge(
    context: &LayerContext,
    lower: &Layer,
    upper: &Layer,
    below: LayersBelow<'_>,
    stop: StopCheck<'_>,
) -> Result<(), LayerError> {
    lower.thaw()?;
    upper.thaw()?;
    let used = |layer: &Layer| layer.used(layer.open()?);
    lower.resize(room_for(used(lower)?.plus(used(upper)?)))?;
    apply(context, (upper, Source::Consumed), lower, below, stop)
}

/// One frozen layer out of `layers`, the oldest first, which use `used`, for a place above the layers `below`.
fn combine(
    context: &LayerContext,
    layers: &[&Layer],
    used: DiskSpace,
    below: LayersBelow<'_>,
    stop: StopCheck<'_>,
) -> Result<FrozenLayer, LayerError> {
    let storage = layers.last().map_or(Storage::Memory, |layer| layer.storage());
    let layer =
        context.layer(room_for(used), below.layers.len(), storage)?.attach(&context.stage)?;
    for upper in layers {
        apply(context, (upper, Source::Kept), &layer, below, stop)?;
    }
    layer.freeze()?;
    let used = layer.used(layer.open()?)?;
    Ok(FrozenLayer::new(layer, used))
}

/// Enough for entries that use `used` and for a second name of each.
pub(super) fn room_for(used: DiskSpace) -> DiskSpace {
    used.plus(used).plus(LEAST_ROOM)
}

/// Applies `upper` to `target`, which lies right below or is empty, and above the layers `below`.
pub(super) fn apply(
    context: &LayerContext,
    (upper, source): (&Layer, Source),
    target: &Layer,
    below: LayersBelow<'_>,
    stop: StopCheck<'_>,
) -> Result<(), LayerError> {
    let prefix =
        if context.features.user_attributes { c"user.overlay." } else { c"trusted.overlay." };
    let marks = LayerMarks { calls: &AttributeCalls, prefix };
    let options = ApplyOptions { marks, consume: source == Source::Consumed, stop };
    let (from, root, entries) = (upper.open_entries()?, target.open()?, target.open_entries()?);
    let remove = || remove_tree(root.as_fd(), SCRATCH.as_ref()).map(drop).map_err(LayerError::from);
    // A stopped application may have left one.
    remove()?;
    mkdirat(&root, SCRATCH, Mode::S_IRWXU).map_err(LayerError::of_errno("make layer"))?;
    let flags = nix::fcntl::OFlag::O_PATH | nix::fcntl::OFlag::O_CLOEXEC;
    let scratch = nix::fcntl::openat(&root, SCRATCH, flags, Mode::empty())
        .map_err(LayerError::of_errno("open layer"))?;
    let beneath = FrozenView::of_layers(context, below)?;
    let into = LayerTarget {
        entries: entries.as_fd(),
        scratch: scratch.as_fd(),
        beneath: beneath.as_ref().map(FrozenView::tree),
    };
    let applied = apply_layer(from.as_fd(), into, options).map_err(LayerError::from);
    drop(scratch);
    remove()?;
    applied
}

impl From<WorkspaceError> for LayerError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::Stopped => Self::Stopped,
            WorkspaceError::System { source, .. } => Self::Failed(cofferdam_core::SetupFailure {
                step: "merge layers".to_owned(),
                reason: error.to_string(),
                errno: Some(source as i32),
            }),
            _ => Self::Failed(cofferdam_core::SetupFailure::from_words(
                "merge layers",
                error.to_string(),
            )),
        }
    }
}
