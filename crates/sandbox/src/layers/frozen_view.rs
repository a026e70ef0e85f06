//! Frozen files, shown to be read.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::chain::{self, FrozenChain, LayersBelow};
use super::context::LayerContext;
use super::error::LayerError;
use super::mounts::read_only;
use super::mounts::view::{View, ViewPlan};

/// The files of a chain, mounted until this is dropped. Nothing can write to them.
#[derive(Debug)]
pub struct FrozenView {
    /// Dropped before its layers.
    view: View,
    _chain: FrozenChain,
}

impl FrozenView {
    pub(super) fn mount(context: &LayerContext, chain: &FrozenChain) -> Result<Self, LayerError> {
        let plan = ViewPlan {
            top: None,
            frozen: chain::paths(&chain.layers),
            trees: read_only::stage_paths(&chain.trees),
            ids: None,
            user_attributes: context.features.user_attributes,
        };
        Ok(Self { view: View::mount(&context.stage, plan)?, _chain: chain.clone() })
    }

    /// As [`FrozenView::mount`] for a part of a chain; `None` if it has no layer.
    pub(super) fn of_layers(
        context: &LayerContext,
        below: LayersBelow<'_>,
    ) -> Result<Option<Self>, LayerError> {
        if below.layers.is_empty() {
            return Ok(None);
        }
        let (layers, trees) = (below.layers.to_vec(), below.trees.to_vec());
        Self::mount(context, &FrozenChain { layers, trees, bound_to: None }).map(Some)
    }

    /// The root of the files, with the directories `workspace` and `tmp`.
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.view.root()
    }

    /// A read-only mount of the directory `path` below the root.
    pub fn mount_of(&self, path: &'static str) -> Result<OwnedFd, LayerError> {
        let [mount] = self.view.clones([path])?;
        Ok(mount)
    }
}
