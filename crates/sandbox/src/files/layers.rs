//! Directories of the root that a box may write to: what it writes is in a layer of its own.
//!
//! A build cache of an image is such a directory. The layer is part of the box's file system, so it
//! counts against the disk limit, no other box sees it, and it is gone with the box.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::layer_copy::copy_for_everybody;
use super::sandbox_fs::SandboxFs;
use crate::launch::sandbox::Sandbox;
use crate::plan::PlannedLayer;
use crate::plan::rootfs::{RootLayout, SkeletonEntry, SkeletonKind, c_string, strip_root};
use crate::pool::idmap::ExtraDescriptors;
use crate::sys;
use cofferdam_core::{SetupFailure, WorkspaceFill};

/// As many as have a number in a box's plan to spare.
const LAYERS_MAX: usize = 16;

/// A directory that lies below the layer of every box.
#[derive(Debug)]
pub struct RootLayer {
    /// Opened once: what is at its path later is another matter.
    directory: Arc<OwnedFd>,
    /// Where it is in a box, absolute.
    path: PathBuf,
}

/// The place of layer `index` in a box's own file system, where its parts have their names.
pub(crate) fn place(index: usize) -> String {
    format!(".overlay/layer{index}")
}

impl Sandbox {
    /// Lets every box write to these directories of its root. Says of each that cannot be had why.
    pub fn add_layers(&mut self, paths: &[PathBuf]) -> Vec<(PathBuf, String)> {
        let mut refused = Vec::new();
        for path in paths {
            if let Err(reason) = self.add_layer(path) {
                refused.push((path.clone(), reason));
            }
        }
        refused
    }

    fn add_layer(&mut self, path: &Path) -> Result<(), String> {
        if self.unprivileged {
            return Err("an overlay takes privileges".to_owned());
        }
        if self.layers.len() == LAYERS_MAX {
            return Err(format!("there are {LAYERS_MAX} already"));
        }
        let directory = self.open_shown(path)?;
        let directory = self.with_our_modes(directory).map_err(|error| error.to_string())?;
        let (layout, target) = (self.layout.clone(), strip_root(path));
        reserve(&mut self.layout, self.layers.len(), &target);
        let path = Path::new("/").join(target);
        self.layers.push(RootLayer { directory: Arc::new(directory), path });
        self.try_workspace(WorkspaceFill::Own).map_err(|failure| {
            self.layers.pop();
            self.layout = layout;
            failure.to_string()
        })
    }

    /// `directory`, or a copy of it where its owner's files cannot be shown as a tenant's.
    fn with_our_modes(&self, directory: OwnedFd) -> io::Result<OwnedFd> {
        let failed = |failure: SetupFailure| io::Error::other(failure.to_string());
        let tenant = self.host_id().map_err(failed)?;
        let here = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        if self.idmaps.for_owner_of(&here, tenant.id()).map_err(failed)?.is_some() {
            return Ok(directory);
        }
        let copy = self.instance.directory().join(format!("layer{}", self.layers.len()));
        copy_for_everybody(directory.as_fd(), &copy)?;
        Ok(File::open(copy)?.into())
    }

    /// The directory at `path` of the root, if runs see it there.
    fn open_shown(&self, path: &Path) -> Result<OwnedFd, String> {
        let target = strip_root(path);
        let is_below = |shown: &[u8]| target.as_os_str().as_encoded_bytes().starts_with(shown);
        let shown = self.layout.shown.iter().any(|shown| {
            let top = [shown.target.as_bytes(), b"/"].concat();
            is_below(&top)
        });
        if !path.is_absolute() || !shown {
            return Err("want an absolute path below a directory that runs see".to_owned());
        }
        if self.layers.iter().any(|layer| overlap(&strip_root(&layer.path), &target)) {
            return Err("another one lies below or above it".to_owned());
        }
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
        openat2(&self.root, &target, how).map_err(|errno| match errno {
            Errno::ENOENT => "it is not there".to_owned(),
            Errno::ENOTDIR => "it is no directory".to_owned(),
            Errno::ELOOP => "a link is on the way".to_owned(),
            errno => errno.to_string(),
        })
    }

    /// What lies below the layers of a box, among its descriptors.
    pub(crate) fn planned_layers(
        &self,
        fs: &SandboxFs,
        extra: &mut ExtraDescriptors,
    ) -> Result<Vec<PlannedLayer>, SetupFailure> {
        let planned = |layer: &RootLayer| {
            let here = PathBuf::from(format!("/proc/self/fd/{}", layer.directory.as_raw_fd()));
            let idmap = self.idmaps.for_owner_of(&here, fs.tenant())?;
            let below = sys::detached_mount(layer.directory.as_fd()).map_err(|error| {
                SetupFailure::from_io(format!("open {}", layer.path.display()), &error)
            })?;
            Ok(PlannedLayer {
                fd: extra.add(Arc::new(below)),
                idmap_fd: idmap.map(|namespace| extra.add(namespace)),
                target: c_string(strip_root(&layer.path).as_os_str()),
            })
        };
        self.layers.iter().map(planned).collect()
    }
}

/// Has every box keep a place for the layer, and write to `target`.
fn reserve(layout: &mut RootLayout, index: usize, target: &Path) {
    let place = place(index);
    let parts = [
        ("", SkeletonKind::Directory),
        ("/lower", SkeletonKind::Directory),
        ("/work", SkeletonKind::Directory),
    ];
    let upper = ("/upper", SkeletonKind::Tenant { mode: 0o755 });
    layout.skeleton.extend(parts.into_iter().chain([upper]).map(|(part, make)| SkeletonEntry {
        path: c_string(format!("{place}{part}").as_ref()),
        make,
    }));
    layout.writable.push(c_string(target.as_os_str()));
}

/// Whether one of two relative paths is the other, or below it.
fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}
