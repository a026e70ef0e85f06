//! The root of a sandbox that shows a workspace's own file system (pure).

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cofferdam_core::{MountedDirectory, WorkspacePath};

use crate::plan::rootfs::{
    MaskedPath, RootLayout, ShownPath, SkeletonEntry, SkeletonKind, c_string, strip_root,
};

/// `/tmp`, relative to the sandbox's root.
const TMP: &CStr = c"tmp";
/// The usual place of a workspace.
const WORKSPACE: &CStr = c"workspace";

/// The mounts that a sandbox shows as its workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedWorkspace {
    /// The descriptor of the workspace's mount.
    pub workspace_fd: i32,
    /// The descriptor of the mount for `/tmp`.
    pub tmp_fd: i32,
    /// Where the workspace is shown, relative to the sandbox's root.
    pub target: CString,
    /// The descriptors of further mounts, and where they are shown.
    pub others: Vec<(i32, CString)>,
}

impl PlannedWorkspace {
    /// For the mounts at these descriptors, and the workspace at `path`.
    pub fn new(workspace_fd: i32, tmp_fd: i32, path: &WorkspacePath) -> Self {
        let target = c_string(strip_root(path.as_path()).as_os_str());
        Self { workspace_fd, tmp_fd, target, others: Vec::new() }
    }

    /// With the mount at a further descriptor, shown at `target`.
    #[must_use]
    pub fn and(mut self, fd: i32, target: &Path) -> Self {
        self.others.push((fd, c_string(strip_root(target).as_os_str())));
        self
    }

    /// Each mount and where it is attached.
    pub fn mounts(&self) -> impl Iterator<Item = (i32, &CStr)> {
        let own = [(self.workspace_fd, self.target.as_c_str()), (self.tmp_fd, TMP)];
        own.into_iter().chain(self.others.iter().map(|(fd, target)| (*fd, target.as_c_str())))
    }
}

/// `layout` with mount points for a workspace at `path`, for `/tmp` and for `others`. What the root has
/// at one of these places or above it is not shown: the mount point is the sandbox's own, so that
/// nothing in the root redirects it. With a terminal, `/dev` has its parts.
pub fn mounted_layout(
    layout: &RootLayout,
    path: &WorkspacePath,
    others: &[MountedDirectory],
    has_terminal: bool,
) -> RootLayout {
    let place = strip_root(path.as_path());
    let mut layout = layout.clone();
    let is_own = |text: &CString| text.as_c_str() == TMP || text.as_c_str() == WORKSPACE;
    layout.writable.retain(|target| !is_own(target));
    layout.skeleton.retain(|entry| {
        let below_tmp = path_of(&entry.path).starts_with("tmp");
        !below_tmp && entry.path.as_c_str() != WORKSPACE
    });
    for other in others {
        if !lies_in_host_tree(&layout, &other.target) {
            add_mount_point(&mut layout, &strip_root(&other.target));
        }
    }
    add_mount_point(&mut layout, Path::new("tmp"));
    add_mount_point(&mut layout, &place);
    if layout.masks_var_tmp && place.starts_with("var") {
        // The root's /var, with the mount point of the sandbox's own /var/tmp, is not shown.
        let path = c_string("var/tmp".as_ref());
        layout.skeleton.push(SkeletonEntry { path, kind: SkeletonKind::Directory });
    }
    if has_terminal {
        add_terminal(&mut layout);
    }
    layout
}

/// Whether the directory `target` of the host lies below a tree of the host that `layout` shows: it is the mount point.
pub fn lies_in_host_tree(layout: &RootLayout, target: &Path) -> bool {
    layout.shown.iter().any(|shown| {
        let tree = path_of(&shown.source);
        target != tree && target.starts_with(tree) && strip_root(tree) == path_of(&shown.target)
    })
}

/// Replaces what `layout` has at `place`, above it or below it.
fn add_mount_point(layout: &mut RootLayout, place: &Path) {
    let collides = |text: &CString| {
        let other = path_of(text);
        place.starts_with(other) || other.starts_with(place)
    };
    layout.shown.retain(|shown| !collides(&shown.target));
    layout.skeleton.retain(|entry| !collides(&entry.path));
    let parents: Vec<&Path> = place.ancestors().filter(|p| !p.as_os_str().is_empty()).collect();
    // First, and from the top: entries that stay may be below the same parents.
    let made = parents.into_iter().rev().map(|path| SkeletonEntry {
        path: c_string(path.as_os_str()),
        kind: SkeletonKind::Directory,
    });
    layout.skeleton.splice(0..0, made);
}

fn path_of(text: &CString) -> &Path {
    Path::new(OsStr::from_bytes(text.as_bytes()))
}

/// Adds the mount points of the terminals, and the node that leads to a process's own.
fn add_terminal(layout: &mut RootLayout) {
    let entries = [
        (c"dev/pts", SkeletonKind::Directory),
        (c"dev/ptmx", SkeletonKind::Symlink(c"pts/ptmx".to_owned())),
        (c"dev/tty", SkeletonKind::File),
    ];
    let entries = entries.map(|(path, kind)| SkeletonEntry { path: path.to_owned(), kind });
    layout.skeleton.extend(entries);
    let (source, target) = (c"/dev/tty".to_owned(), c"dev/tty".to_owned());
    layout.devices.push(ShownPath { source, target, unowned: false });
}

/// The paths in `masked` that a sandbox shows that has another tree at `path`, in a tree of the root: none below
/// `path`.
pub fn masked_beside(masked: Vec<MaskedPath>, path: &Path) -> Vec<MaskedPath> {
    let place = strip_root(path);
    let is_below = |masked: &MaskedPath| {
        let other = Path::new(OsStr::from_bytes(masked.target.as_bytes()));
        other != place && other.starts_with(&place)
    };
    masked.into_iter().filter(|masked| !is_below(masked)).collect()
}

/// The paths in `masked` that a sandbox with a file system of its own at `path` has of the root: none
/// in that file system.
pub fn masked_outside(masked: Vec<MaskedPath>, path: &Path) -> Vec<MaskedPath> {
    let place = strip_root(path);
    let collides = |masked: &MaskedPath| {
        let other = Path::new(OsStr::from_bytes(masked.target.as_bytes()));
        place.starts_with(other) || other.starts_with(&place)
    };
    masked.into_iter().filter(|masked| !collides(masked)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: SkeletonKind) -> SkeletonEntry {
        SkeletonEntry { path: c_string(path.as_ref()), kind }
    }

    fn shown(target: &str) -> ShownPath {
        let target = c_string(target.as_ref());
        ShownPath { source: target.clone(), target, unowned: false }
    }

    fn root() -> RootLayout {
        let tenant = || SkeletonKind::Tenant { mode: 0o755 };
        let directory = || SkeletonKind::Directory;
        RootLayout {
            skeleton: vec![
                entry("usr", directory()),
                entry("home", directory()),
                entry("srv", SkeletonKind::Symlink(c"usr/srv".to_owned())),
                entry("data", directory()),
                entry("data/keep", directory()),
                entry("workspace", tenant()),
                entry("tmp", tenant()),
                entry("tmp/home", tenant()),
                entry("run", tenant()),
            ],
            shown: ["usr", "home", "data/keep"].map(shown).to_vec(),
            writable: ["workspace", "tmp", "run"].map(|path| c_string(path.as_ref())).to_vec(),
            ..RootLayout::default()
        }
    }

    fn at(path: &str) -> (Vec<String>, Vec<String>) {
        let layout = mounted_layout(&root(), &WorkspacePath::parse(path).unwrap(), &[], false);
        assert_eq!(layout.writable, [c"run".to_owned()]);
        let text = |path: &CString| path.to_str().unwrap().to_owned();
        let skeleton = layout.skeleton.iter().map(|entry| {
            let link = matches!(entry.kind, SkeletonKind::Symlink(_));
            format!("{}{}", text(&entry.path), if link { "@" } else { "" })
        });
        (skeleton.collect(), layout.shown.iter().map(|shown| text(&shown.target)).collect())
    }

    #[test]
    fn the_usual_place_is_a_mount_point_of_the_sandboxs_own() {
        let (skeleton, shown) = at("/workspace");
        let wanted = ["workspace", "tmp", "usr", "home", "srv@", "data", "data/keep", "run"];
        assert_eq!((skeleton, shown), (wanted.map(str::to_owned).to_vec(), at_all()));
    }

    fn at_all() -> Vec<String> {
        ["usr", "home", "data/keep"].map(str::to_owned).to_vec()
    }

    #[test]
    fn another_place_replaces_what_the_root_has_there_and_workspace() {
        let table = [
            (
                "/home/a/b",
                &["home", "home/a", "home/a/b", "tmp", "usr", "srv@", "data", "data/keep", "run"][..],
                &["usr", "data/keep"][..],
            ),
            (
                "/srv/x",
                &["srv", "srv/x", "tmp", "usr", "home", "data", "data/keep", "run"],
                &["usr", "home", "data/keep"],
            ),
            (
                "/data/other",
                &["data", "data/other", "tmp", "usr", "home", "srv@", "data/keep", "run"],
                &["usr", "home", "data/keep"],
            ),
            (
                "/data/keep",
                &["data", "data/keep", "tmp", "usr", "home", "srv@", "run"],
                &["usr", "home"],
            ),
        ];
        for (path, skeleton, shown) in table {
            let wanted = (skeleton.to_vec(), shown.to_vec());
            let found = at(path);
            let found = (
                found.0.iter().map(String::as_str).collect::<Vec<_>>(),
                found.1.iter().map(String::as_str).collect::<Vec<_>>(),
            );
            assert_eq!(found, wanted, "{path}");
        }
    }

    #[test]
    fn a_place_below_var_leaves_the_mount_point_of_the_sandboxs_own_var_tmp() {
        let mut root = root();
        root.skeleton.push(entry("var", SkeletonKind::Directory));
        root.shown.push(shown("var"));
        for (masks_var_tmp, count) in [(true, 1), (false, 0)] {
            let root = RootLayout { masks_var_tmp, ..root.clone() };
            let place = WorkspacePath::parse_outside_system("/var/www").unwrap();
            let layout = mounted_layout(&root, &place, &[], false);
            let made = layout.skeleton.iter().filter(|made| made.path.as_c_str() == c"var/tmp");
            assert_eq!(made.count(), count);
            assert!(!layout.shown.iter().any(|shown| shown.target.as_c_str() == c"var"));
        }
    }

    #[test]
    fn a_further_directory_replaces_what_the_root_has_there() {
        let other = |target: &str| MountedDirectory {
            mount: std::fs::File::open("/").unwrap().into(),
            target: target.into(),
        };
        let others = [other("/data/keep"), other("/deps")];
        let layout = mounted_layout(&root(), &WorkspacePath::default(), &others, false);
        let skeleton: Vec<&str> =
            layout.skeleton.iter().map(|entry| entry.path.to_str().unwrap()).collect();
        let wanted = ["workspace", "tmp", "deps", "data", "data/keep", "usr", "home", "srv", "run"];
        assert_eq!(skeleton, wanted);
        let shown: Vec<&str> =
            layout.shown.iter().map(|shown| shown.target.to_str().unwrap()).collect();
        assert_eq!(shown, ["usr", "home"]);
    }

    #[test]
    fn a_directory_of_a_shown_tree_of_the_host_is_mounted_over_itself() {
        let mut root = root();
        root.shown[0].source = c"/usr".to_owned();
        let other = MountedDirectory {
            mount: std::fs::File::open("/").unwrap().into(),
            target: "/usr/local/src".into(),
        };
        let found = mounted_layout(&root, &WorkspacePath::default(), &[other], false);
        assert!(found.shown.iter().any(|shown| shown.target.as_c_str() == c"usr"));
        assert!(!found.skeleton.iter().any(|made| made.path.as_c_str() == c"usr/local"));
        let masked =
            |target: &str| MaskedPath { target: c_string(target.as_ref()), directory: true };
        let all = ["usr", "usr/local", "usr/local/src", "usr/local/src/x"].map(masked).to_vec();
        let left = masked_beside(all, Path::new("/usr/local/src"));
        assert_eq!(left, ["usr", "usr/local", "usr/local/src"].map(masked));
    }

    #[test]
    fn nothing_in_a_workspace_is_masked() {
        let masked =
            |target: &str| MaskedPath { target: c_string(target.as_ref()), directory: true };
        let all = ["home", "home/a", "home/a/x", "home/b", "etc/x"].map(masked).to_vec();
        let left = masked_outside(all, Path::new("/home/a"));
        assert_eq!(left, ["home/b", "etc/x"].map(masked));
    }
}
