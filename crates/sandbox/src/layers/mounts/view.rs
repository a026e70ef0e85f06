//! What a workspace's files are seen through: the one layer of a workspace without a snapshot, or an
//! overlay, with the owners of files mapped to the workspace's host id.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;
use nix::unistd::mkdir;

use super::stage::{self, MountName, Stage};
use crate::layers::error::LayerError;
use crate::sys;

/// Where clones of layers with mapped ids are attached while an overlay of them is mounted.
const CLONES: &str = "clones";

/// What a view is made of. Paths are those of layers on the stage.
#[derive(Debug, Clone)]
pub(in crate::layers) struct ViewPlan {
    /// The writable layer; none for a view that only reads.
    pub(in crate::layers) top: Option<String>,
    /// The frozen layers, the newest first.
    pub(in crate::layers) frozen: Vec<String>,
    /// Maps the owners of files.
    pub(in crate::layers) ids: Option<Arc<OwnedFd>>,
    /// Whether overlayfs keeps its marks in attributes that need no privileges.
    pub(in crate::layers) user_attributes: bool,
}

/// A mounted view.
#[derive(Debug)]
pub(in crate::layers) struct View {
    /// Dropped first, so that the mount goes with its name.
    root: OwnedFd,
    name: MountName,
}

impl View {
    /// A name for a view and a job for the stage's thread that mounts it.
    pub(in crate::layers) fn prepare(
        stage: &Arc<Stage>,
        plan: ViewPlan,
    ) -> (MountName, impl FnOnce() -> Result<OwnedFd, LayerError> + Send + 'static) {
        let name = stage.name();
        let (stage, path) = (Arc::clone(stage), name.path().to_owned());
        (name, move || plan.mount(&stage, &path))
    }

    pub(in crate::layers) fn new(name: MountName, root: OwnedFd) -> Self {
        Self { root, name }
    }

    /// Mounts it.
    pub(in crate::layers) fn mount(stage: &Arc<Stage>, plan: ViewPlan) -> Result<Self, LayerError> {
        let (name, job) = Self::prepare(stage, plan);
        let root = stage.call("mount workspace", job)?;
        Ok(Self::new(name, root))
    }

    /// Detaches it; its root is an empty directory from now on. What it shows is unmounted when this
    /// returns, unless a sandbox has a clone of it.
    pub(in crate::layers) fn close(&mut self) -> Result<(), LayerError> {
        let stage = Arc::clone(self.name.stage());
        let nothing =
            stage.call("close view", || stage::open_directory(stage::NOTHING, OFlag::O_PATH))?;
        let closed = std::mem::replace(self, Self { root: nothing, name: stage.name() });
        drop(closed.root);
        closed.name.detach()
    }

    /// Its root directory.
    pub(in crate::layers) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Clones of the mount from the directories `names` of the root on, attached nowhere.
    pub(in crate::layers) fn clones<const N: usize>(
        &self,
        names: [&'static str; N],
    ) -> Result<[OwnedFd; N], LayerError> {
        let path = self.name.path().to_owned();
        let clones = self.name.stage().call("clone workspace", move || {
            let clone = |name: &&str| {
                let directory = stage::open_directory(&format!("{path}/{name}"), OFlag::O_PATH)?;
                sys::detached_mount(directory.as_fd()).map_err(LayerError::of_io("clone mount"))
            };
            names.iter().map(clone).collect::<Result<Vec<_>, _>>()
        })?;
        clones.try_into().map_err(|_| LayerError::Stopped)
    }
}

impl ViewPlan {
    /// On the stage's thread: mounts the view at the new directory `path` and opens it.
    fn mount(&self, stage: &Arc<Stage>, path: &str) -> Result<OwnedFd, LayerError> {
        match (&self.top, self.frozen.as_slice()) {
            (Some(only), []) => stage::attach_new(self.clone_of(&format!("{only}/u"))?, path)?,
            (None, [only]) => stage::attach_new(self.clone_of(&format!("{only}/u"))?, path)?,
            _ => self.mount_overlay(stage, path)?,
        }
        stage::open_directory(path, OFlag::O_PATH)
    }

    /// A clone of the mount at `path`, attached nowhere, with ids mapped.
    fn clone_of(&self, path: &str) -> Result<OwnedFd, LayerError> {
        match &self.ids {
            None => {
                let directory = stage::open_directory(path, OFlag::O_PATH)?;
                sys::detached_mount(directory.as_fd()).map_err(LayerError::of_io("clone mount"))
            }
            Some(ids) => {
                let clone = sys::copy_with_ids_mapped(Path::new(path), ids.as_fd());
                let clone = clone.map_err(LayerError::of_io("map ids"))?;
                clone.ok_or(nix::errno::Errno::EINVAL).map_err(LayerError::of_errno("map ids"))
            }
        }
    }

    fn mount_overlay(&self, stage: &Arc<Stage>, path: &str) -> Result<(), LayerError> {
        mkdir(path, Mode::S_IRWXU).map_err(LayerError::of_errno("make mount point"))?;
        if self.ids.is_none() {
            return self.mount_layers(path, |layer, _| layer.to_owned());
        }
        let _clones = Clones::attach(self, stage)?;
        self.mount_layers(path, |_, index| format!("{CLONES}/{index}"))
    }

    /// The layers of the view, the newest first.
    fn layers(&self) -> impl Iterator<Item = &String> {
        self.top.iter().chain(&self.frozen)
    }

    /// Mounts the overlay with each layer at the path that `place` returns for it and its index.
    fn mount_layers(
        &self,
        path: &str,
        place: impl Fn(&str, usize) -> String,
    ) -> Result<(), LayerError> {
        let mut places: Vec<String> =
            self.layers().enumerate().map(|(index, layer)| place(layer, index)).collect();
        // What an upper layer says about files must not depend on where layers lie: they are mounted
        // again, by others and over others.
        let mut options = "index=off,metacopy=off,xino=off".to_owned();
        options += if self.user_attributes { ",userxattr" } else { ",redirect_dir=off" };
        if self.top.is_some() {
            let top = places.remove(0);
            options += &format!(",upperdir={top}/u,workdir={top}/w");
        }
        let frozen: Vec<String> = places.iter().map(|place| format!("{place}/u")).collect();
        options += &format!(",lowerdir={}", frozen.join(":"));
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let overlay = Some("overlay");
        mount(overlay, path, overlay, flags, Some(options.as_str()))
            .map_err(LayerError::of_errno("mount overlay"))
    }
}

/// Clones of layers, attached below one mount, with which they are detached all at once. That is a job of
/// its own: the kernel waits for every CPU, and the overlay is complete before. A later one is attached
/// on top of an earlier one that is still there.
struct Clones {
    stage: Arc<Stage>,
}

impl Clones {
    fn attach(plan: &ViewPlan, stage: &Arc<Stage>) -> Result<Self, LayerError> {
        make_directory(CLONES)?;
        let below = stage::open_directory(CLONES, OFlag::O_PATH)?;
        let below = sys::detached_mount(below.as_fd()).map_err(LayerError::of_io("clone mount"))?;
        stage::attach(below, CLONES)?;
        let clones = Self { stage: Arc::clone(stage) };
        for (index, layer) in plan.layers().enumerate() {
            let path = format!("{CLONES}/{index}");
            make_directory(&path)?;
            stage::attach(plan.clone_of(layer)?, &path)?;
        }
        Ok(clones)
    }
}

impl Drop for Clones {
    fn drop(&mut self) {
        self.stage.later(|| {
            // It is attached, so it can be detached.
            let _ = umount2(CLONES, MntFlags::MNT_DETACH);
        });
    }
}

fn make_directory(path: &str) -> Result<(), LayerError> {
    match mkdir(path, Mode::S_IRWXU) {
        Ok(()) | Err(nix::errno::Errno::EEXIST) => Ok(()),
        Err(errno) => Err(LayerError::of_errno("make mount point")(errno)),
    }
}
