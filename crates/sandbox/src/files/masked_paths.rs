//! The paths of the host that a sandbox masks in the trees it shows.
//!
//! They are looked up for every run: a directory created after the server's start, a link in its
//! place or a file system mounted since must not become a way to a masked path.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::mounts::{MountTable, topmost_below};
use super::unix_sockets;
use crate::plan::PlannedTree;
use crate::plan::rootfs::{MaskedPath, RootLayout, c_string, strip_root};
use crate::plan::steps::mount::Access;
use cofferdam_core::SetupFailure;

/// A tree of the host and its path in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ShownTree {
    source: PathBuf,
    target: PathBuf,
}

/// The host paths that sandboxes must not see below the trees they show.
#[derive(Debug)]
pub struct MaskedPaths {
    /// The trees of every sandbox's root.
    shown: Vec<ShownTree>,
    /// The profile's hidden paths that are in one of the trees.
    hidden: Vec<PathBuf>,
    /// The service's own paths that are in one of the trees.
    private_shown: Vec<PathBuf>,
    /// All of the service's own paths.
    private: Vec<PathBuf>,
    /// The trees in which a tenant could connect to sockets.
    with_sockets: Vec<ShownTree>,
    mounts: MountTable,
    /// The mount points below the trees of the root, cached by mount table.
    mounted: Mutex<RootMounts>,
}

#[derive(Debug)]
struct RootMounts {
    /// The mount points of the host that `masked` was made from.
    of: Arc<[PathBuf]>,
    masked: Arc<[MaskedPath]>,
}

impl MaskedPaths {
    /// The masked paths of sandboxes whose root is `layout`. `hidden` are the profile's paths, none if
    /// the root is not the host's; `private` are the service's own.
    pub fn new(layout: &RootLayout, hidden: &[PathBuf], private: &[PathBuf]) -> io::Result<Self> {
        let path = |text: &std::ffi::CString| PathBuf::from(OsStr::from_bytes(text.as_bytes()));
        let tree = |shown: &crate::plan::rootfs::ShownPath| {
            let (source, target) = (path(&shown.source), path(&shown.target));
            // A single name is not a link, and is below the root, whose path has no links.
            let is_real = target.components().count() == 1;
            let real = if is_real { None } else { source.canonicalize().ok() };
            ShownTree { source: real.unwrap_or(source), target }
        };
        let shown: Vec<ShownTree> = layout.shown.iter().map(tree).collect();
        // Only an administrator can change the tree that a path leads into; its last component is
        // looked up for every run.
        let is_shown = |path: &Path| shown.iter().any(|tree| path.starts_with(&tree.source));
        // A path that does not exist yet may later lead into any tree.
        let leads_inside = |path: &&PathBuf| {
            is_shown(path) || path.canonicalize().map_or(true, |real| is_shown(&real))
        };
        let inside = |paths: &[PathBuf]| paths.iter().filter(leads_inside).cloned().collect();
        Ok(Self {
            hidden: inside(hidden),
            private_shown: inside(private),
            private: private.to_vec(),
            with_sockets: shown.clone(),
            shown,
            mounts: MountTable::open()?,
            mounted: Mutex::new(RootMounts { of: Arc::new([]), masked: Arc::new([]) }),
        })
    }

    /// The real paths of the trees of every sandbox's root, and the current mount points.
    pub fn trees(&self) -> io::Result<(Vec<PathBuf>, Arc<[PathBuf]>)> {
        Ok((self.shown.iter().map(|tree| tree.source.clone()).collect(), self.mounts.points()?))
    }

    /// Skips the search for sockets in the trees that are mounted unowned: no connection is possible there.
    pub fn trust_unowned(&mut self, unowned: &[bool]) {
        let mut unowned = unowned.iter();
        self.with_sockets.retain(|_| unowned.next() != Some(&true));
    }

    /// Whether `path` is masked because it is a mount point.
    pub fn is_masked_mount(&self, path: &Path) -> io::Result<bool> {
        let Ok(path) = path.canonicalize() else { return Ok(false) };
        let shown = self.shown.iter().any(|tree| path.starts_with(&tree.source));
        Ok(shown && self.mounts.points()?.contains(&path))
    }

    /// The masked paths of a sandbox with the additional trees `asked`.
    pub fn for_run(&self, asked: &[PlannedTree]) -> Result<Vec<MaskedPath>, SetupFailure> {
        let points =
            self.mounts.points().map_err(|error| SetupFailure::from_io("read mounts", &error))?;
        let mut masked: Vec<MaskedPath> = self.mounted_below_root(&points)?.to_vec();
        for path in self.hidden.iter().chain(&self.private_shown) {
            masked.extend(masked_at(path, &self.shown)?);
        }
        masked.extend(self.sockets()?);
        let asked = asked.iter().filter(|tree| tree.access != Access::Device && tree.directory);
        for tree in asked {
            let tree = asked_tree(tree)?;
            masked.extend(mounted_below(&points, &tree)?);
            for path in self.private.iter().filter(|path| **path != tree.source) {
                masked.extend(masked_at(path, std::slice::from_ref(&tree))?);
            }
        }
        // Parents before children, and each path once.
        masked.sort_by(|a, b| a.target.cmp(&b.target));
        masked.dedup();
        Ok(masked)
    }

    /// The path in a sandbox without binds of `real`, an absolute path on the host without links;
    /// `None` if the sandbox does not show it.
    pub fn path_inside(&self, real: &Path) -> Result<Option<PathBuf>, SetupFailure> {
        let masked = self.for_run(&[])?;
        let is_masked = |inside: &Path| {
            let target =
                |masked: &MaskedPath| OsStr::from_bytes(masked.target.as_bytes()).to_owned();
            masked.iter().any(|masked| inside.starts_with(target(masked)))
        };
        let inside =
            |tree: &ShownTree| Some(tree.target.join(real.strip_prefix(&tree.source).ok()?));
        let paths = self.shown.iter().filter_map(inside);
        Ok(paths.filter(|path| !is_masked(path)).map(|p| Path::new("/").join(p)).next())
    }

    /// The known sockets of the host in the trees where a tenant could connect to them.
    fn sockets(&self) -> Result<Vec<MaskedPath>, SetupFailure> {
        let mut masked = Vec::new();
        if self.with_sockets.is_empty() {
            return Ok(masked);
        }
        let bound = unix_sockets::bound_paths()
            .map_err(|error| SetupFailure::from_io("read sockets", &error))?;
        for path in bound {
            // Any user can bind sockets: one with an unusable path must not keep runs from starting.
            masked.extend(masked_at(&path, &self.with_sockets).unwrap_or_default());
        }
        Ok(masked)
    }

    fn mounted_below_root(
        &self,
        points: &Arc<[PathBuf]>,
    ) -> Result<Arc<[MaskedPath]>, SetupFailure> {
        let mut last = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&last.of, points) {
            let mut mounted = Vec::new();
            for tree in &self.shown {
                mounted.extend(mounted_below(points, tree)?);
            }
            *last = RootMounts { of: Arc::clone(points), masked: mounted.into() };
        }
        Ok(Arc::clone(&last.masked))
    }
}

/// A tree that a run asks for, by its real path.
fn asked_tree(tree: &PlannedTree) -> Result<ShownTree, SetupFailure> {
    let source = Path::new(OsStr::from_bytes(tree.source.as_bytes()));
    let failed = |error| SetupFailure::from_io(format!("bind {}", source.display()), &error);
    let target = strip_root(Path::new(OsStr::from_bytes(tree.target.as_bytes())));
    Ok(ShownTree { source: source.canonicalize().map_err(failed)?, target })
}

/// The paths in `trees` of what `path` leads to, if it exists.
fn masked_at(path: &Path, trees: &[ShownTree]) -> Result<Vec<MaskedPath>, SetupFailure> {
    let failed = |error| SetupFailure::from_io(format!("mask {}", path.display()), &error);
    // One call for a path that does not exist, as most do not; canonicalize takes several.
    if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(Vec::new());
    }
    let real = match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result.map_err(failed)?,
    };
    let mut masked = Vec::new();
    for tree in trees.iter().filter(|tree| real.starts_with(&tree.source)) {
        let directory = real.symlink_metadata().map_err(failed)?.is_dir();
        masked.extend(inside(tree, &real, directory));
    }
    Ok(masked)
}

/// The mount points below `tree`: a copy of the tree contains what those mounts hide.
fn mounted_below(points: &[PathBuf], tree: &ShownTree) -> Result<Vec<MaskedPath>, SetupFailure> {
    let mut masked = Vec::new();
    for point in topmost_below(points, &tree.source) {
        let directory = is_directory_beneath(point)
            .map_err(|error| SetupFailure::from_io(format!("mask {}", point.display()), &error))?;
        masked.extend(inside(tree, point, directory));
    }
    Ok(masked)
}

/// Whether a mount at `point` hides a directory. Reads the parent directory, since the mount itself
/// may be a network file system whose server does not answer.
fn is_directory_beneath(point: &Path) -> io::Result<bool> {
    let (Some(parent), Some(name)) = (point.parent(), point.file_name()) else { return Ok(true) };
    let entries = match std::fs::read_dir(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        result => result?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == name {
            return Ok(entry.file_type()?.is_dir());
        }
    }
    // Gone by now: a mask without a target is skipped.
    Ok(true)
}

fn inside(tree: &ShownTree, path: &Path, directory: bool) -> Option<MaskedPath> {
    let below = path.strip_prefix(&tree.source).ok()?;
    let target = c_string(tree.target.join(below).as_os_str());
    Some(MaskedPath { target, directory })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn shown(source: &Path) -> ShownTree {
        ShownTree { source: source.to_owned(), target: "shown".into() }
    }

    fn names(masked: &[MaskedPath]) -> Vec<(&str, bool)> {
        masked.iter().map(|c| (c.target.to_str().unwrap(), c.directory)).collect()
    }

    #[test]
    fn the_target_of_a_link_is_masked_and_not_the_link() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("real/secret")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        for (link, to) in [("link", "real/secret"), ("way", "real"), ("out", "/"), ("dead", "x")] {
            symlink(to, root.join(link)).unwrap();
        }
        for (path, want) in [
            ("real/secret", Some(("shown/real/secret", true))),
            ("link", Some(("shown/real/secret", true))),
            ("way/secret", Some(("shown/real/secret", true))),
            ("file", Some(("shown/file", false))),
            ("absent", None),
            ("dead", None),
            ("out", None),
        ] {
            let masked = masked_at(&root.join(path), &[shown(&root)]).unwrap();
            assert_eq!(names(&masked), Vec::from_iter(want), "{path}");
        }
    }

    #[test]
    fn mount_points_below_a_tree_are_masked_by_the_kind_they_hide() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        fs::create_dir_all(root.join("volume/deeper")).unwrap();
        fs::write(root.join("hosts"), "").unwrap();
        let points = ["hosts", "volume", "volume/deeper"].map(|name| root.join(name));
        let masked = mounted_below(&points, &shown(root)).unwrap();
        assert_eq!(names(&masked), [("shown/hosts", false), ("shown/volume", true)]);
    }
}
