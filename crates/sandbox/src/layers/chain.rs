//! Frozen layers, which workspaces and snapshots share.

use std::sync::{Arc, OnceLock};

use super::mounts::layer::Layer;
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
#[derive(Debug, Clone)]
pub struct FrozenChain {
    /// The oldest first.
    pub(super) layers: Vec<Arc<FrozenLayer>>,
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

/// What `layers` use together.
pub(super) fn used(layers: &[Arc<FrozenLayer>]) -> DiskSpace {
    layers.iter().fold(DiskSpace::default(), |sum, frozen| sum.plus(frozen.used))
}

/// Their paths on the stage, the newest first.
pub(super) fn paths(layers: &[Arc<FrozenLayer>]) -> Vec<String> {
    layers.iter().rev().map(|frozen| frozen.layer.path().to_owned()).collect()
}
