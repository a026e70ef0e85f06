//! The layers of all workspaces of one service.

use std::path::Path;
use std::sync::Arc;

use super::chain::FrozenChain;
use super::context::LayerContext;
use super::disk::image::ImageMaker;
use super::error::LayerError;
use super::features::LayerFeatures;
use super::frozen_view::FrozenView;
use super::mounts::layer::{DetachedLayer, Place};
use super::mounts::stage::Stage;
use super::space::{DiskSpace, LEAST_ROOM, Storage};
use super::workspace_fs::WorkspaceFs;
use crate::pool::host_id::HostId;
use cofferdam_tree::{READ_ONLY_TREES, StopCheck, TreeDigest, digest_tree};

/// Makes the file systems of workspaces. One service has one.
#[derive(Debug, Clone)]
pub struct LayerHost {
    context: LayerContext,
}

impl LayerHost {
    /// Starts the thread that holds the mounts, and tries what this host can do with files that belong to
    /// `host_id`, which no sandbox has.
    pub fn open(host_id: &HostId) -> Result<Self, LayerError> {
        let stage = Stage::start()?;
        let features = Arc::new(LayerFeatures::probe(&stage, host_id)?);
        let images = Err("no directory for images is set".to_owned());
        Ok(Self { context: LayerContext { stage, features, images } })
    }

    /// Keeps the images of workspaces on disk in `directory`, if this host can mount images: tries that,
    /// which takes some 10 ms. [`LayerHost::images`] has the result.
    #[must_use]
    pub fn with_images(mut self, directory: &Path) -> Self {
        self.context.images = ImageMaker::open(directory).and_then(|images| {
            let tried = DetachedLayer::on_disk(&images, LEAST_ROOM, Place::Bottom);
            tried.map_err(|error| error.to_string()).map(|_| Arc::new(images))
        });
        self
    }

    /// Whether workspaces can be on disk; otherwise the reason.
    pub fn images(&self) -> Result<(), &str> {
        self.context.images.as_ref().map(drop).map_err(String::as_str)
    }

    /// What this host can do.
    pub fn features(&self) -> &LayerFeatures {
        &self.context.features
    }

    /// The id of the thread that holds the mounts, once it has done what it was told to.
    #[cfg(test)]
    pub(super) fn thread_of_mounts(&self) -> i32 {
        let id = || Ok(nix::unistd::gettid().as_raw());
        self.context.stage.call("thread id", id).unwrap_or_default()
    }

    /// Until this receives, nothing that is dropped from now on is unmounted.
    #[cfg(test)]
    pub(super) fn hold_unmounted(&self) -> std::sync::mpsc::Receiver<()> {
        self.context.stage.settled()
    }

    /// Creates the file system of a new workspace, whose sandboxes have `host_id`.
    pub fn create(
        &self,
        limit: DiskSpace,
        storage: Storage,
        host_id: &HostId,
    ) -> Result<WorkspaceFs, LayerError> {
        WorkspaceFs::create(&self.context, limit, storage, host_id)
    }

    /// Shows the files of `chain`, to be read, with their owners on disk.
    pub fn view(&self, chain: &FrozenChain) -> Result<FrozenView, LayerError> {
        FrozenView::mount(&self.context, chain)
    }

    /// The digest of the files of `chain`.
    pub fn digest(
        &self,
        chain: &FrozenChain,
        stop: StopCheck<'_>,
    ) -> Result<TreeDigest, LayerError> {
        Ok(digest_tree(self.view(chain)?.tree(), Some(READ_ONLY_TREES), stop)?)
    }

    /// Creates a file system with the files of `chain`, which stay as they are.
    pub fn fork(
        &self,
        chain: &FrozenChain,
        limit: DiskSpace,
        storage: Storage,
        host_id: &HostId,
    ) -> Result<WorkspaceFs, LayerError> {
        WorkspaceFs::fork(&self.context, chain, limit, storage, host_id)
    }
}
