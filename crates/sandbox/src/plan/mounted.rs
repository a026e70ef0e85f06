//! The root of a sandbox that shows a workspace's own file system (pure).

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cofferdam_core::WorkspacePath;

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
}

impl PlannedWorkspace {
    /// For the mounts at these descriptors, and the workspace at `path`.
    pub fn new(workspace_fd: i32, tmp_fd: i32, path: &WorkspacePath) -> Self {
        let target = c_string(strip_root(path.as_path()).as_os_str());
        Self { workspace_fd, tmp_fd, target }
    }

    /// Each mount and where it is attached.
    pub fn mounts(&self) -> [(i32, &CStr); 2] {
        [(self.workspace_fd, &self.target), (self.tmp_fd, TMP)]
    }
}

/// `layout` with mount points for a workspace at `path` and for `/tmp`. What the root has at `path`
/// or above it is not shown: the mount point is the sandbox's own, so that nothing in the root
/// redirects it. With a terminal, `/dev` has its parts.
pub fn mounted_layout(layout: &RootLayout, path: &WorkspacePath, has_terminal: bool) -> RootLayout {
    let place = strip_root(path.as_path());
    let path_of = |text: &CString| Path::new(OsStr::from_bytes(text.as_bytes())).to_owned();
    // At the place, above it or below it.
    let collides = |text: &CString| {
        let other = path_of(text);
        place.starts_with(&other) || other.starts_with(&place)
    };
    let is_own = |text: &CString| text.as_c_str() == TMP || text.as_c_str() == WORKSPACE;
    let mut layout = layout.clone();
    layout.shown.retain(|shown| !collides(&shown.target));
    layout.writable.retain(|target| !is_own(target));
    layout.skeleton.retain(|entry| {
        let below_tmp = path_of(&entry.path).starts_with("tmp");
        !below_tmp && entry.path.as_c_str() != WORKSPACE && !collides(&entry.path)
    });
    let parents: Vec<&Path> = place.ancestors().filter(|p| !p.as_os_str().is_empty()).collect();
    // First, and from the top: entries that stay may be below the same parents.
    let made = parents.into_iter().rev().chain([Path::new("tmp")]);
    let made = made.map(|path| SkeletonEntry {
        path: c_string(path.as_os_str()),
        kind: SkeletonKind::Directory,
    });
    layout.skeleton.splice(0..0, made);
    if has_terminal {
        add_terminal(&mut layout);
    }
    layout
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

/// The paths in `masked` that a sandbox with a workspace at `path` has of the root: none in the
/// workspace itself.
pub fn masked_outside(masked: Vec<MaskedPath>, path: &WorkspacePath) -> Vec<MaskedPath> {
    let place = strip_root(path.as_path());
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
        let layout = mounted_layout(&root(), &WorkspacePath::parse(path).unwrap(), false);
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
    fn nothing_in_a_workspace_is_masked() {
        let masked =
            |target: &str| MaskedPath { target: c_string(target.as_ref()), directory: true };
        let all = ["home", "home/a", "home/a/x", "home/b", "etc/x"].map(masked).to_vec();
        let left = masked_outside(all, &WorkspacePath::parse("/home/a").unwrap());
        assert_eq!(left, ["home/b", "etc/x"].map(masked));
    }
}
