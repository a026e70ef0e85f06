//! What all layers of one service share.

use std::sync::Arc;

use super::disk::image::ImageMaker;
use super::error::LayerError;
use super::features::LayerFeatures;
use super::mounts::layer::{DetachedLayer, Place};
use super::mounts::stage::Stage;
use super::space::{DiskSpace, Storage};

/// The thread that holds the mounts, and what the host can do.
#[derive(Debug, Clone)]
pub(super) struct LayerContext {
    pub(super) stage: Arc<Stage>,
    pub(super) features: Arc<LayerFeatures>,
    /// Makes layers on disk; or why there are none.
    pub(super) images: Result<Arc<ImageMaker>, String>,
}

impl LayerContext {
    /// A new layer above `count` others, with room for `room`.
    pub(super) fn layer(
        &self,
        room: DiskSpace,
        count: usize,
        storage: Storage,
    ) -> Result<DetachedLayer, LayerError> {
        let place = match count {
            0 => Place::Bottom,
            _ => Place::Above { own_inodes: self.features.upper_own_inodes },
        };
        match storage {
            Storage::Memory => DetachedLayer::in_memory(room, place),
            Storage::Disk => {
                let images = self.images.as_ref();
                let unavailable =
                    |reason: &String| LayerError::StorageUnavailable { reason: reason.clone() };
                DetachedLayer::on_disk(images.map_err(unavailable)?, room, place)
            }
        }
    }
}
