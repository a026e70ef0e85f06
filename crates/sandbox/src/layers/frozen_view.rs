//! Frozen files, shown to be read.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::chain::{self, FrozenChain, FrozenLayer};
use super::context::LayerContext;
use super::error::LayerError;
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
            ids: None,
            user_attributes: context.features.user_attributes,
        };
        Ok(Self { view: View::mount(&context.stage, plan)?, _chain: chain.clone() })
    }

    /// As [`FrozenView::mount`] for a part of a chain; `None` if it has no layer.
    pub(super) fn of_layers(
        context: &LayerContext,
        layers: &[Arc<FrozenLayer>],
    ) -> Result<Option<Self>, LayerError> {
        if layers.is_empty() {
            return Ok(None);
        }
        Self::mount(context, &FrozenChain { layers: layers.to_vec(), bound_to: None }).map(Some)
    }

    /// The root of the files, with the directories `workspace` and `tmp`.
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.view.root()
    }
}
