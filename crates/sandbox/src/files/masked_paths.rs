//! What is masked in a box although a tree that is shown holds it.
//!
//! Looked up for every run: a directory made after the server's start, a link
//! put in its place or a file system mounted since must not be the way to it.

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

/// A tree of the host and where a box has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ShownTree {
    source: PathBuf,
    target: PathBuf,
}

/// What must not be seen of the host, below whatever trees are shown.
#[derive(Debug)]
pub struct MaskedPaths {
    /// The trees of every box's root.
    shown: Vec<ShownTree>,
    /// Of the profile's hidden paths those that are in one of the trees.
    hidden: Vec<PathBuf>,
    /// Of the service's own paths those that are in one of the trees.
    private_shown: Vec<PathBuf>,
    /// All of the service's own paths.
    private: Vec<PathBuf>,
    /// Of the trees those whose sockets could be connected to.
    with_sockets: Vec<ShownTree>,
    mounts: MountTable,
    /// The mount points below the trees of the root, and the table they are from.
    mounted: Mutex<RootMounts>,
}

#[derive(Debug)]
struct RootMounts {
    of: Arc<[PathBuf]>,
    masked: Arc<[MaskedPath]>,
}

impl MaskedPaths {
    /// For boxes whose root is `layout`: `hidden` are the profile's paths (none
    /// where the root is not the host's), `private` the service's own.
    pub fn new(layout: &RootLayout, hidden: &[PathBuf], private: &[PathBuf]) -> io::Result<Self> {
        let path = |text: &std::ffi::CString| PathBuf::from(OsStr::from_bytes(text.as_bytes()));
        let place = |shown: &crate::plan::rootfs::ShownPath| {
            let (source, target) = (path(&shown.source), path(&shown.target));
            // A single name is below the root, whose own path has no links, and is none itself.
            let is_real = target.components().count() == 1;
            let real = if is_real { None } else { source.canonicalize().ok() };
            ShownTree { source: real.unwrap_or(source), target }
        };
        let shown: Vec<ShownTree> = layout.shown.iter().map(place).collect();
        // Which trees a path leads into may change only by an administrator's hand on the way
        // to it; what is at its end is looked up for every run.
        let is_shown = |path: &Path| shown.iter().any(|tree| path.starts_with(&tree.source));
        // What is not there yet may come to be anywhere.
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

    /// The real paths of the trees of every box's root, and the mount points there are.
    pub fn trees(&self) -> io::Result<(Vec<PathBuf>, Arc<[PathBuf]>)> {
        Ok((self.shown.iter().map(|tree| tree.source.clone()).collect(), self.mounts.points()?))
    }

    /// Has no socket looked for in the trees for which `unowned` says that none can be reached.
    pub fn trust_unowned(&mut self, unowned: &[bool]) {
        let mut unowned = unowned.iter();
        self.with_sockets.retain(|_| unowned.next() != Some(&true));
    }

    /// Whether `path` is masked for being a mount of its own.
    pub fn is_masked_mount(&self, path: &Path) -> io::Result<bool> {
        let Ok(path) = path.canonicalize() else { return Ok(false) };
        let shown = self.shown.iter().any(|tree| path.starts_with(&tree.source));
        Ok(shown && self.mounts.points()?.contains(&path))
    }

    /// What to cover in a box that also has the trees of `asked`.
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
            let place = asked_place(tree)?;
            masked.extend(mounted_below(&points, &place)?);
            for path in self.private.iter().filter(|path| **path != place.source) {
                masked.extend(masked_at(path, std::slice::from_ref(&place))?);
            }
        }
        // What is above comes before what is below, and each once.
        masked.sort_by(|a, b| a.target.cmp(&b.target));
        masked.dedup();
        Ok(masked)
    }

    /// Where a box that shows no more than every box has what is at `real` on the host, an
    /// absolute path without links; none where it does not show it.
    pub fn path_inside(&self, real: &Path) -> Result<Option<PathBuf>, SetupFailure> {
        let masked = self.for_run(&[])?;
        let is_covered = |inside: &Path| {
            let target =
                |masked: &MaskedPath| OsStr::from_bytes(masked.target.as_bytes()).to_owned();
            masked.iter().any(|masked| inside.starts_with(target(masked)))
        };
        let inside =
            |tree: &ShownTree| Some(tree.target.join(real.strip_prefix(&tree.source).ok()?));
        let places = self.shown.iter().filter_map(inside);
        Ok(places.filter(|place| !is_covered(place)).map(|p| Path::new("/").join(p)).next())
    }

    /// The sockets of the host in trees where they could be connected to, as far as they are known.
    fn sockets(&self) -> Result<Vec<MaskedPath>, SetupFailure> {
        let mut masked = Vec::new();
        if self.with_sockets.is_empty() {
            return Ok(masked);
        }
        let bound = unix_sockets::bound_paths()
            .map_err(|error| SetupFailure::from_io("read sockets", &error))?;
        for path in bound {
            // Any user binds sockets: one whose path leads nowhere must not keep runs from starting.
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
            for place in &self.shown {
                mounted.extend(mounted_below(points, place)?);
            }
            *last = RootMounts { of: Arc::clone(points), masked: mounted.into() };
        }
        Ok(Arc::clone(&last.masked))
    }
}

/// The tree a run asks for, by its real path.
fn asked_place(tree: &PlannedTree) -> Result<ShownTree, SetupFailure> {
    let source = Path::new(OsStr::from_bytes(tree.source.as_bytes()));
    let failed = |error| SetupFailure::from_io(format!("bind {}", source.display()), &error);
    let target = strip_root(Path::new(OsStr::from_bytes(tree.target.as_bytes())));
    Ok(ShownTree { source: source.canonicalize().map_err(failed)?, target })
}

/// Where the trees of `places` have what `path` leads to, if there is something.
fn masked_at(path: &Path, places: &[ShownTree]) -> Result<Vec<MaskedPath>, SetupFailure> {
    let failed = |error| SetupFailure::from_io(format!("mask {}", path.display()), &error);
    // One call for what is not there, as most is not, where the walk along its path takes several.
    if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(Vec::new());
    }
    let real = match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result.map_err(failed)?,
    };
    let mut masked = Vec::new();
    for place in places.iter().filter(|place| real.starts_with(&place.source)) {
        let directory = real.symlink_metadata().map_err(failed)?.is_dir();
        masked.extend(inside(place, &real, directory));
    }
    Ok(masked)
}

/// The places of what is mounted below the tree of `place`: its copy has there
/// what those mounts hide.
fn mounted_below(points: &[PathBuf], place: &ShownTree) -> Result<Vec<MaskedPath>, SetupFailure> {
    let mut masked = Vec::new();
    for point in topmost_below(points, &place.source) {
        let directory = is_directory_beneath(point)
            .map_err(|error| SetupFailure::from_io(format!("mask {}", point.display()), &error))?;
        masked.extend(inside(place, point, directory));
    }
    Ok(masked)
}

/// Whether a mount at `point` hides a directory. Asked of the directory it is
/// in: the mount itself may be a dead server's, which answers nobody.
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
    // Gone by now: there is nothing to cover, and covering nothing is no failure.
    Ok(true)
}

fn inside(place: &ShownTree, path: &Path, directory: bool) -> Option<MaskedPath> {
    let below = path.strip_prefix(&place.source).ok()?;
    let target = c_string(place.target.join(below).as_os_str());
    Some(MaskedPath { target, directory })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn place(source: &Path) -> ShownTree {
        ShownTree { source: source.to_owned(), target: "shown".into() }
    }

    fn names(masked: &[MaskedPath]) -> Vec<(&str, bool)> {
        masked.iter().map(|c| (c.target.to_str().unwrap(), c.directory)).collect()
    }

    #[test]
    fn what_a_path_leads_to_is_covered_and_not_the_link() {
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
            let masked = masked_at(&root.join(path), &[place(&root)]).unwrap();
            assert_eq!(names(&masked), Vec::from_iter(want), "{path}");
        }
    }

    #[test]
    fn mount_points_below_a_tree_are_covered_as_what_they_hide() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        fs::create_dir_all(root.join("volume/deeper")).unwrap();
        fs::write(root.join("hosts"), "").unwrap();
        let points = ["hosts", "volume", "volume/deeper"].map(|name| root.join(name));
        let masked = mounted_below(&points, &place(root)).unwrap();
        assert_eq!(names(&masked), [("shown/hosts", false), ("shown/volume", true)]);
    }
}
