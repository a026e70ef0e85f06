//! Frozen layers, which workspaces and snapshots share.

use std::sync::{Arc, OnceLock};

use super::mounts::layer::Layer;
use super::mounts::read_only::MountedTree;
use super::space::{DiskSpace, Storage};
use crate::pool::host_id::HostId;
use cofferdam_core::sync::retained::Retained;

/// A layer that no longer changes. It is freed when the last workspace and the last snapshot that need it
/// are dropped.
#[derive(Debug)]
pub(super) struct FrozenLayer {
    pub(super) layer: Layer,
    /// What its entries use.
    pub(super) used: DiskSpace,
    /// What is dropped with it: its owner's account of what it uses.
    pub(super) retained: OnceLock<Retained>,
}

impl FrozenLayer {
    /// A layer whose entries use `used`. It retains nothing yet.
    pub(super) fn new(layer: Layer, used: DiskSpace) -> Self {
        Self { layer, used, retained: OnceLock::new() }
    }
}

/// The files of a workspace at one moment: its frozen layers.
#[derive(Debug, Clone, Default)]
pub struct FrozenChain {
    /// The oldest first.
    pub(super) layers: Vec<Arc<FrozenLayer>>,
    /// The read-only trees that they show, which lie below them.
    pub(super) trees: Vec<MountedTree>,
    /// The only host id to which these files can be shown, where ids cannot be mapped.
    pub(super) bound_to: Option<HostId>,
}

impl FrozenChain {
    /// What all layers use together.
    pub fn used(&self) -> DiskSpace {
        used(&self.layers)
    }

    /// How many layers there are.
    pub fn depth(&self) -> usize {
        self.layers.len()
    }

    /// The layers above those of `base`, alone; all of them if `base` is not below. Shown by themselves, one
    /// layer has the marks of what was removed: character devices 0:0.
    #[must_use]
    pub fn above(&self, base: &Self) -> Self {
        let is_same =
            |(own, other): (&Arc<FrozenLayer>, &Arc<FrozenLayer>)| Arc::ptr_eq(own, other);
        let has_base = self.layers.len() >= base.layers.len()
            && self.layers.iter().zip(&base.layers).all(is_same);
        if !has_base {
            return self.clone();
        }
        let layers = self.layers.iter().skip(base.layers.len()).cloned().collect();
        Self { layers, trees: Vec::new(), bound_to: self.bound_to.clone() }
    }

    /// Lets each layer that retains nothing yet retain what `retain` returns for what it uses and where it is,
    /// until it is freed. Stops at the first error.
    pub fn retain_with_layers<E>(
        &self,
        mut retain: impl FnMut(DiskSpace, Storage) -> Result<Retained, E>,
    ) -> Result<(), E> {
        for frozen in self.layers.iter().filter(|frozen| frozen.retained.get().is_none()) {
            let retained = retain(frozen.used, frozen.layer.storage())?;
            // Another caller may have been faster; then this one's is dropped.
            let _ = frozen.retained.set(retained);
        }
        Ok(())
    }

    /// The read-only trees that are shown, with their places.
    pub fn trees(&self) -> &[MountedTree] {
        &self.trees
    }

    /// What all layers retain.
    pub fn retained(&self) -> Retained {
        let mut all = Retained::default();
        for retained in self.layers.iter().filter_map(|frozen| frozen.retained.get()) {
            all.extend(retained.clone());
        }
        all
    }

    /// The host id that every fork gets, where the kernel cannot map the owners of these files (before
    /// Linux 6.3).
    pub fn bound_to(&self) -> Option<&HostId> {
        self.bound_to.as_ref()
    }
}

/// The layers below another one.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayersBelow<'chain> {
    /// The oldest first.
    pub(super) layers: &'chain [Arc<FrozenLayer>],
    /// The read-only trees that they show.
    pub(super) trees: &'chain [MountedTree],
}

/// What `layers` use together.
pub(super) fn used(layers: &[Arc<FrozenLayer>]) -> DiskSpace {
    layers.iter().fold(DiskSpace::default(), |sum, frozen| sum.plus(frozen.used))
}

/// Their paths on the stage, the newest first.
pub(super) fn paths(layers: &[Arc<FrozenLayer>]) -> Vec<String> {
    layers.iter().rev().map(|frozen| frozen.layer.path().to_owned()).collect()
}
