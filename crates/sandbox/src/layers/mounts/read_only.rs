//! Trees that many workspaces show, each at places of its own, and that nothing can change.
//!
//! Such a tree is a frozen layer whose only entry is the directory `m/<name>`, and lies below all layers of a workspace.
//! Sandboxes do not see `m`: it lies beside `workspace` and `tmp`. A directory of an upper layer that is marked with
//! that path shows the tree, and goes on to do so when it, or a directory above it, gets another name.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};

use super::attributes::AttributeCalls;
use super::layer::Layer;
use crate::layers::error::LayerError;
use crate::layers::space::{DiskSpace, Storage};
use cofferdam_core::sync::retained::Retained;
use cofferdam_tree::{
    LayerMarks, READ_ONLY_TREES, WorkspaceError, add_redirects, reveal_redirects,
};

/// The attributes of overlayfs. Trees are not mounted without privileges.
const PREFIX: &CStr = c"trusted.overlay.";
const MARKS: LayerMarks<'static> = LayerMarks { calls: &AttributeCalls, prefix: PREFIX };

/// Files that many workspaces show. They are freed with the last workspace and the last snapshot that show them.
#[derive(Debug)]
pub struct ReadOnlyTree {
    layer: Layer,
    used: DiskSpace,
    /// Dropped with the files: the account of what they use.
    _retained: Retained,
}

/// A tree whose files are still written. Dropping it frees them.
#[derive(Debug)]
pub struct ReadOnlyTreeDraft {
    layer: Layer,
    directory: OwnedFd,
}

/// A tree that a workspace shows, with the place where it was shown first.
#[derive(Debug, Clone)]
pub struct MountedTree {
    /// The tree.
    pub tree: Arc<ReadOnlyTree>,
    /// The path below the root of the workspace's file system. A program may have moved it since.
    pub path: PathBuf,
}

impl ReadOnlyTreeDraft {
    pub(in crate::layers) fn new(layer: Layer) -> Result<Self, LayerError> {
        let entries = layer.open_entries()?;
        let path = path_of(&layer);
        let make = |path: &str| {
            mkdirat(&entries, path, Mode::from_bits_truncate(0o755))
                .map_err(LayerError::of_errno("make read-only tree"))
        };
        make(&READ_ONLY_TREES.to_string_lossy())?;
        make(&path)?;
        let directory = open_directory(entries.as_fd(), Path::new(&path))?;
        Ok(Self { layer, directory })
    }

    /// The directory with the files, at first empty. Only the service can reach it.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// What its files use.
    pub fn used(&self) -> Result<DiskSpace, LayerError> {
        self.layer.used(&self.directory)
    }

    /// The tree, which retains `retained`. Nothing can change it any more.
    ///
    /// # Errors
    /// A file is still open for writing.
    pub fn finish(self, retained: Retained) -> Result<ReadOnlyTree, LayerError> {
        let used = self.used()?;
        let Self { layer, directory } = self;
        drop(directory);
        layer.freeze()?;
        Ok(ReadOnlyTree { layer, used, _retained: retained })
    }
}

impl ReadOnlyTree {
    /// What its files use.
    pub fn used(&self) -> DiskSpace {
        self.used
    }

    /// Where its files are.
    pub fn storage(&self) -> Storage {
        self.layer.storage()
    }

    /// Opens the directory with the files.
    pub fn open(&self) -> Result<OwnedFd, LayerError> {
        open_directory(self.layer.open_entries()?.as_fd(), Path::new(&path_of(&self.layer)))
    }

    /// Its path on the stage.
    pub(in crate::layers) fn stage_path(&self) -> &str {
        self.layer.path()
    }

    /// Lets the directory at `path` of the layer `top` show the tree, once both are layers of one view. No view may
    /// have looked for that directory since it has this name.
    pub(in crate::layers) fn mark(&self, top: &Layer, path: &Path) -> Result<(), LayerError> {
        let directory = open_directory(top.open_entries()?.as_fd(), path)?;
        MARKS
            .set_redirect(&directory, redirect_to(&self.layer).as_bytes())
            .map_err(LayerError::of_io("mark mount point"))
    }

    /// Lets the directories of the layer `top` that are marked with the tree show it under the names that they have got
    /// since.
    pub(in crate::layers) fn reveal(&self, top: &Layer) -> Result<(), LayerError> {
        let entries = top.open_entries()?;
        let revealed: Result<(), WorkspaceError> =
            reveal_redirects(entries.as_fd(), MARKS, redirect_to(&self.layer).as_bytes());
        revealed.map_err(LayerError::from)
    }
}

/// Those of `mounted` that a directory of `layers` shows.
pub(in crate::layers) fn shown_by<'layers>(
    mounted: &[MountedTree],
    layers: impl Iterator<Item = &'layers Layer>,
) -> Result<Vec<MountedTree>, LayerError> {
    if mounted.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = BTreeSet::new();
    for layer in layers {
        let entries = layer.open_entries()?;
        let added: Result<(), WorkspaceError> = add_redirects(entries.as_fd(), MARKS, &mut found);
        added.map_err(LayerError::from)?;
    }
    let is_shown =
        |mounted: &&MountedTree| found.contains(redirect_to(&mounted.tree.layer).as_bytes());
    Ok(mounted.iter().filter(is_shown).cloned().collect())
}

/// Their paths on the stage, each once.
pub(in crate::layers) fn stage_paths(mounted: &[MountedTree]) -> Vec<String> {
    let paths: BTreeSet<&str> = mounted.iter().map(|mounted| mounted.tree.stage_path()).collect();
    paths.into_iter().map(str::to_owned).collect()
}

/// The number of a layer's mount is given once.
fn path_of(layer: &Layer) -> String {
    format!("{}/{}", READ_ONLY_TREES.to_string_lossy(), layer.path())
}

fn redirect_to(layer: &Layer) -> String {
    format!("/{}", path_of(layer))
}

fn open_directory(at: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, LayerError> {
    let beneath = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(beneath);
    openat2(at, path, how).map_err(LayerError::of_errno("open directory of a layer"))
}
