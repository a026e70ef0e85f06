//! Directories of the root that a sandbox may write to: what it writes goes into a layer of its own.
//!
//! The build cache of an image is such a directory. The layer is part of the sandbox's file system:
//! it counts against the disk limit, no other sandbox sees it, and it is gone with the sandbox.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::layer_copy::copy_for_everybody;
use crate::files::root_directory::RootDirectory;
use crate::plan::rootfs::{
    RootLayout, SkeletonEntry, SkeletonKind, c_string, layer_directory, strip_root,
};
use crate::plan::steps::mount::PlannedLayer;
use crate::pool::idmap::{ExtraDescriptors, IdMaps};
use crate::sys;
use cofferdam_core::SetupFailure;

/// Each layer takes registers of a sandbox's plan.
const LAYERS_MAX: usize = 16;

/// A directory of the root with a layer above it in every sandbox.
#[derive(Debug)]
struct RootLayer {
    /// Opened once: its path may lead to another directory later.
    directory: Arc<OwnedFd>,
    /// Its absolute path in a sandbox.
    path: PathBuf,
}

/// The layers of every sandbox.
#[derive(Debug, Default)]
pub struct RootLayers {
    layers: Vec<RootLayer>,
}

impl RootLayers {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Opens the directory at `path` of the root, if runs see it there and it may get a layer.
    pub fn open(
        &self,
        root: &RootDirectory,
        layout: &RootLayout,
        path: &Path,
    ) -> Result<OwnedFd, String> {
        if self.layers.len() == LAYERS_MAX {
            return Err(format!("there are {LAYERS_MAX} already"));
        }
        let target = strip_root(path);
        let is_below = |shown: &[u8]| target.as_os_str().as_encoded_bytes().starts_with(shown);
        let shown = layout.shown.iter().any(|shown| {
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
        openat2(root, &target, how).map_err(|errno| match errno {
            Errno::ENOENT => "it is not there".to_owned(),
            Errno::ENOTDIR => "it is no directory".to_owned(),
            Errno::ELOOP => "a link is on the way".to_owned(),
            errno => errno.to_string(),
        })
    }

    /// Adds a layer above `directory`, which sandboxes see at `path`, and reserves its directories
    /// in `layout`.
    pub fn push(&mut self, directory: OwnedFd, path: &Path, layout: &mut RootLayout) {
        let target = strip_root(path);
        reserve(layout, self.layers.len(), &target);
        let path = Path::new("/").join(target);
        self.layers.push(RootLayer { directory: Arc::new(directory), path });
    }

    /// Takes back the last one.
    pub fn pop(&mut self) {
        self.layers.pop();
    }

    /// The mounts below the layers of one sandbox, added to its descriptors.
    pub fn planned(
        &self,
        idmaps: &IdMaps,
        tenant: u32,
        extra: &mut ExtraDescriptors,
    ) -> Result<Vec<PlannedLayer>, SetupFailure> {
        let planned = |layer: &RootLayer| {
            let here = descriptor_path(&layer.directory);
            let idmap = idmaps.for_owner_of(&here, tenant)?;
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

/// Returns `directory`, or opens a copy of it at `copy` if its file system cannot show its owner's
/// files as a tenant's.
pub fn mappable_or_copy(
    directory: OwnedFd,
    idmaps: &IdMaps,
    tenant: u32,
    copy: &Path,
) -> io::Result<OwnedFd> {
    let idmap = idmaps.for_owner_of(&descriptor_path(&directory), tenant);
    if idmap.map_err(|failure| io::Error::other(failure.to_string()))?.is_some() {
        return Ok(directory);
    }
    copy_for_everybody(directory.as_fd(), copy)?;
    Ok(File::open(copy)?.into())
}

fn descriptor_path(directory: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", directory.as_raw_fd()).into()
}

/// Adds the directories of the layer to every sandbox's own file system, and `target` to its
/// writable directories.
fn reserve(layout: &mut RootLayout, index: usize, target: &Path) {
    let directory = layer_directory(index);
    let parts = [
        ("", SkeletonKind::Directory),
        ("/lower", SkeletonKind::Directory),
        ("/work", SkeletonKind::Directory),
        ("/upper", SkeletonKind::Tenant { mode: 0o755 }),
    ];
    layout.skeleton.extend(parts.into_iter().map(|(part, kind)| SkeletonEntry {
        path: c_string(format!("{directory}{part}").as_ref()),
        kind,
    }));
    layout.writable.push(c_string(target.as_os_str()));
}

/// Whether one of two relative paths is the other, or below it.
fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}
