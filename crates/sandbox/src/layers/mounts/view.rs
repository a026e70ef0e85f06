//! What a workspace's files are seen through: the one layer of a workspace without a snapshot, or an
//! overlay, with the owners of files mapped to the workspace's host id.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;
use nix::unistd::mkdir;

use super::calls;
use super::stage::{self, MountName, Stage};
use crate::layers::error::LayerError;
use crate::sys;

/// Where clones of layers with mapped ids are attached while an overlay of them is mounted.
const CLONES: &str = "clones";
/// Has the mount points of clones. Nothing is attached to it, so that a mount of it has no other's ids.
const POINTS: &str = "points";
/// The name there of the clone of the writable layer. Frozen ones have their numbers, the oldest first.
const TOP: &str = "top";
/// The names there of the clones of read-only trees begin with this; their numbers follow.
const READ_ONLY: &str = "tree";
/// From so many frozen layers on, their clones are made by one call, of a tree that is kept. For fewer it
/// would not save much.
const TREE_LAYERS_MIN: usize = 4;

/// What a view is made of. Paths are those of layers on the stage.
#[derive(Debug, Clone)]
pub(in crate::layers) struct ViewPlan {
    /// The writable layer; none for a view that only reads.
    pub(in crate::layers) top: Option<String>,
    /// The frozen layers, the newest first.
    pub(in crate::layers) frozen: Vec<String>,
    /// The read-only trees, which lie below.
    pub(in crate::layers) trees: Vec<String>,
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

    /// Lets the kernel forget the entries of it that nothing uses. An overlay keeps a file of its top in use under the
    /// name by which it was found first, and thereby the directory of that name, also when both are removed and the
    /// file has another name: until that is forgotten, the top cannot be frozen.
    pub(in crate::layers) fn drop_unused(&self) {
        let path = self.name.path().to_owned();
        let dropped = self.name.stage().call("drop cache of view", move || {
            let root = stage::open_directory(&path, OFlag::O_PATH)?;
            // To change nothing of a file system drops what is cached of it, before anything can fail.
            calls::reconfigure(root.as_fd(), &[]).map_err(LayerError::of_io("drop cache of view"))
        });
        if let Err(error) = dropped {
            log::warn!("a workspace keeps what is cached of it: {error}");
        }
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
            (Some(only), []) | (None, [only]) if self.trees.is_empty() => {
                stage::attach_new(self.clone_of(&format!("{only}/u"))?, path)?;
            }
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
        let Some(ids) = &self.ids else {
            let lower: Vec<String> = self.frozen.iter().chain(&self.trees).cloned().collect();
            return self.mount_layers(path, self.top.as_deref(), &lower);
        };
        let _clones = Clones::attach(self, ids.as_fd(), stage)?;
        let top = self.top.as_ref().map(|_| format!("{CLONES}/{TOP}"));
        let frozen = (0..self.frozen.len()).rev().map(|number| format!("{CLONES}/{number}"));
        let trees = (0..self.trees.len()).map(|number| format!("{CLONES}/{READ_ONLY}{number}"));
        let lower: Vec<String> = frozen.chain(trees).collect();
        self.mount_layers(path, top.as_deref(), &lower)
    }

    /// How overlayfs treats directories that show others.
    fn redirects(&self) -> &'static str {
        match (self.trees.is_empty(), &self.top, self.frozen.as_slice()) {
            // None of them would have a mark.
            _ if self.user_attributes => "userxattr",
            (true, ..) => "redirect_dir=off",
            // No directory but those that show trees lies in a lower layer, so that no other gets a mark when it is
            // renamed.
            (false, Some(_), []) => "redirect_dir=on",
            (false, ..) => "redirect_dir=follow",
        }
    }

    /// Mounts the overlay of the layers at the paths `top` and `lower`, the newest first.
    fn mount_layers(
        &self,
        path: &str,
        top: Option<&str>,
        lower: &[String],
    ) -> Result<(), LayerError> {
        // What an upper layer says about files must not depend on where layers lie: they are mounted
        // again, by others and over others.
        let mut options = format!("index=off,metacopy=off,xino=off,{}", self.redirects());
        if let Some(top) = top {
            options += &format!(",upperdir={top}/u,workdir={top}/w");
        }
        let lower: Vec<String> = lower.iter().map(|place| format!("{place}/u")).collect();
        options += &format!(",lowerdir={}", lower.join(":"));
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let overlay = Some("overlay");
        mount(overlay, path, overlay, flags, Some(options.as_str()))
            .map_err(LayerError::of_errno("mount overlay"))
    }

    /// A clone of a tree with all frozen layers, with ids mapped. The tree stays for the next view.
    fn tree(&self, ids: BorrowedFd<'_>, stage: &Stage) -> Result<OwnedFd, LayerError> {
        let chain: Vec<&str> = self.frozen.iter().rev().map(String::as_str).collect();
        let mut trees = stage.trees();
        if trees.find(&chain).is_none() {
            let place = stage.next_path();
            stage::attach_new(empty_tree()?, &place)?;
            if let Some(unused) = trees.add(place) {
                stage.later(move || stage::detach_tree(&unused));
            }
        }
        let tree = trees.find(&chain).ok_or(LayerError::Stopped)?;
        for layer in chain.get(tree.layers.len()..).unwrap_or_default() {
            let directory = stage::open_directory(layer, OFlag::O_PATH)?;
            let clone = sys::detached_mount(directory.as_fd());
            let clone = clone.map_err(LayerError::of_io("clone mount"))?;
            attach_below(&tree.place, &tree.layers.len().to_string(), clone)?;
            tree.layers.push((*layer).to_owned());
        }
        let root = stage::open_directory(&tree.place, OFlag::O_PATH)?;
        sys::detached_trees_with_ids(root.as_fd(), ids).map_err(LayerError::of_io("map ids"))
    }
}

/// Clones of layers, attached below one mount, with which they are detached all at once. That is a job of
/// its own: the kernel waits for every CPU, and the overlay is complete before. A later one is attached
/// on top of an earlier one that is still there.
struct Clones {
    stage: Arc<Stage>,
}

impl Clones {
    fn attach(
        plan: &ViewPlan,
        ids: BorrowedFd<'_>,
        stage: &Arc<Stage>,
    ) -> Result<Self, LayerError> {
        make_directory(CLONES)?;
        let has_tree = plan.frozen.len() >= TREE_LAYERS_MIN;
        let below = if has_tree { plan.tree(ids, stage)? } else { empty_tree()? };
        stage::attach(below, CLONES)?;
        let clones = Self { stage: Arc::clone(stage) };
        if !has_tree {
            for (number, layer) in plan.frozen.iter().rev().enumerate() {
                attach_below(CLONES, &number.to_string(), plan.clone_of(layer)?)?;
            }
        }
        if let Some(top) = &plan.top {
            attach_below(CLONES, TOP, plan.clone_of(top)?)?;
        }
        for (number, tree) in plan.trees.iter().enumerate() {
            attach_below(CLONES, &format!("{READ_ONLY}{number}"), plan.clone_of(tree)?)?;
        }
        Ok(clones)
    }
}

/// A mount of the directory that has the mount points of clones, attached nowhere.
fn empty_tree() -> Result<OwnedFd, LayerError> {
    make_directory(POINTS)?;
    let below = stage::open_directory(POINTS, OFlag::O_PATH)?;
    sys::detached_mount(below.as_fd()).map_err(LayerError::of_io("clone mount"))
}

fn attach_below(tree: &str, name: &str, mount: OwnedFd) -> Result<(), LayerError> {
    let path = format!("{tree}/{name}");
    make_directory(&path)?;
    stage::attach(mount, &path)
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
