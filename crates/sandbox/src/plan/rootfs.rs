//! What a box sees of a root file system: skeleton, binds and masks, as data.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use cofferdam_seccomp::profile::{RootView, SYSTEM};

/// What a path of the real root is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathKind {
    /// A directory.
    Directory,
    /// A symbolic link and its target.
    Symlink(PathBuf),
    /// Anything else.
    Other,
}

/// One entry of the box's own file system, made before anything is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkeletonEntry {
    /// Relative to the box's root; parents come first.
    pub path: CString,
    /// What to make.
    pub kind: SkeletonKind,
}

/// What a skeleton entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkeletonKind {
    /// A directory of root's, which the tenant can read but not write.
    Directory,
    /// A directory of root's that the tenant cannot even enter.
    Closed,
    /// A directory of the tenant's with this mode.
    Tenant { mode: u32 },
    /// An empty file, for a mount to cover.
    File,
    /// A file of root's with this text.
    Text(&'static str),
    /// A symbolic link.
    Symlink(CString),
}

/// A path of the host shown in the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownPath {
    /// Absolute, on the host.
    pub source: CString,
    /// Relative to the box's root.
    pub target: CString,
    /// Whether it is mounted so that its files seem to be nobody's.
    pub unowned: bool,
}

/// Something to cover in a box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedPath {
    /// Relative to the box's root.
    pub target: CString,
    /// Whether it is a directory.
    pub directory: bool,
}

/// A box's root, worked out once per root and profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootLayout {
    /// The entries to make, parents first.
    pub skeleton: Vec<SkeletonEntry>,
    /// Directories shown read-only.
    pub shown: Vec<ShownPath>,
    /// The tenant's own directories, relative to the box's root, none below another.
    pub writable: Vec<CString>,
    /// Device nodes shown.
    pub devices: Vec<ShownPath>,
    /// What to cover in every box.
    pub masks: Vec<MaskedPath>,
    /// Whether [`VAR_TMP`] is to be put over `/var/tmp`.
    pub masks_var_tmp: bool,
    /// Whether [`HOSTS`] is to be put over `/etc/hosts` where that has to be path.
    pub masks_hosts: bool,
}

impl RootLayout {
    /// Has every box keep hosts of its own ready: the root's are a mount of their own, as in
    /// containers, which no box shows.
    pub fn keep_own_hosts(&mut self) {
        self.masks_hosts = true;
        let path = c_string(OsStr::new(HOSTS));
        self.skeleton.push(SkeletonEntry { path, kind: SkeletonKind::Text(HOSTS_TEXT) });
    }

    /// Has the trees for which `unowned` says so mounted as nobody's.
    pub fn show_unowned(&mut self, unowned: &[bool]) {
        for (shown, unowned) in self.shown.iter_mut().zip(unowned) {
            shown.unowned = *unowned;
        }
    }

    /// Whether `target` is below a tree that is nobody's, where root has no more rights than a
    /// tenant.
    pub fn is_below_unowned(&self, target: &CStr) -> bool {
        let below = |tree: &[u8]| {
            target.to_bytes().strip_prefix(tree).is_some_and(|rest| rest.starts_with(b"/"))
        };
        self.shown.iter().any(|shown| shown.unowned && below(shown.target.to_bytes()))
    }

    /// What of the box's own file system covers `path`.
    pub fn mask_for(&self, path: &MaskedPath) -> &'static str {
        match path.directory {
            true => EMPTY,
            false if self.masks_hosts && path.target.as_c_str() == HOSTS_TARGET => HOSTS,
            false => "dev/null",
        }
    }
}

/// Where the box's own `/var/tmp` is while `/var` is the root's.
pub const VAR_TMP: &str = ".var-tmp";

/// The names of addresses in a box whose `/etc/hosts` has to be path.
const HOSTS: &str = ".hosts";
const HOSTS_TEXT: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";
const HOSTS_TARGET: &CStr = c"etc/hosts";
/// Where the kernel's mount of a box's message queues is; no tenant gets there.
pub const QUEUES: &CStr = c".overlay/queues";

/// What covers directories.
const EMPTY: &str = ".empty";
/// Where the overlay's layers and the message queues are.
const OVERLAY: &str = ".overlay";
/// The copy of a program that has no name on the host.
pub const PROGRAM: &CStr = c".program";
const PROGRAM_NAME: &str = ".program";

/// Top-level names that are the sandbox's own whatever the real root has there. A link of the real
/// root at one of them would lead steps that root takes to wherever its maker likes.
const OWN: [&str; 11] =
    ["dev", "proc", "run", "sys", "tmp", "workspace", EMPTY, HOSTS, OVERLAY, PROGRAM_NAME, VAR_TMP];

/// Lays out the box's root. `base` is `/` or the root given instead of it;
/// `entries` are its top-level names; `kind_of` looks at a path below `base`
/// (as the box names it); `private` are host paths of the service itself, which
/// [`covers`](crate::files::masked_paths) looks for below what is shown.
pub fn layout(
    base: &Path,
    entries: &[(String, PathKind)],
    view: &RootView,
    private: &[PathBuf],
    kind_of: &dyn Fn(&Path) -> Option<PathKind>,
) -> RootLayout {
    let mut draft = LayoutBuilder {
        base: base.to_owned(),
        layout: RootLayout::default(),
        made: BTreeSet::new(),
    };
    // A root given on purpose is shown whole; the host's is not ours to show.
    let is_host = base == Path::new("/");
    let hide: Vec<&Path> =
        if is_host { view.hide.iter().map(Path::new).collect() } else { Vec::new() };
    for (name, kind) in entries {
        let path = Path::new("/").join(name);
        let hidden = OWN.contains(&name.as_str())
            || is_host && !SYSTEM.contains(&name.as_str())
            || hide.contains(&path.as_path())
            || private.contains(&base.join(name));
        match kind {
            _ if hidden => {}
            PathKind::Symlink(target) => {
                draft.make(Path::new(name), SkeletonKind::Symlink(c_string(target.as_os_str())));
            }
            PathKind::Directory => draft.show(&path),
            PathKind::Other => {}
        }
    }
    draft.own_directories();
    draft.devices(&view.devices);
    if is_host {
        for path in view.keep.iter().map(Path::new) {
            let is_private = private.iter().any(|private| path.starts_with(private));
            if !is_private && kind_of(path) == Some(PathKind::Directory) {
                draft.show(path);
            }
        }
    }
    for path in &view.proc_mask {
        // Kernel files look the same in every `/proc`, so the host's own tells.
        let directory = kind_at(Path::new(path)) == Some(PathKind::Directory);
        draft.layout.masks.push(MaskedPath { target: relative(Path::new(path)), directory });
    }
    draft.layout
}

/// What `path` is.
pub fn kind_at(path: &Path) -> Option<PathKind> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some(if metadata.is_symlink() {
        PathKind::Symlink(std::fs::read_link(path).ok()?)
    } else if metadata.is_dir() {
        PathKind::Directory
    } else {
        PathKind::Other
    })
}

/// A layout under construction.
struct LayoutBuilder {
    base: PathBuf,
    layout: RootLayout,
    made: BTreeSet<PathBuf>,
}

impl LayoutBuilder {
    /// Makes `path` (relative) and, before it, whatever parents it lacks.
    fn make(&mut self, path: &Path, make: SkeletonKind) {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|parent| !self.made.contains(*parent)) {
            self.make(parent, SkeletonKind::Directory);
        }
        if self.made.insert(path.to_owned()) {
            self.layout
                .skeleton
                .push(SkeletonEntry { path: c_string(path.as_os_str()), kind: make });
        }
    }

    /// Shows the directory `path` (absolute, as the box names it) read-only.
    fn show(&mut self, path: &Path) {
        let target = strip_root(path);
        self.make(&target, SkeletonKind::Directory);
        let source = self.base.join(&target);
        self.layout.shown.push(ShownPath {
            source: c_string(source.as_os_str()),
            target: c_string(target.as_os_str()),
            unowned: false,
        });
    }

    /// What every box has of its own.
    fn own_directories(&mut self) {
        for name in ["dev", "proc", EMPTY] {
            self.make(Path::new(name), SkeletonKind::Directory);
        }
        // One directory's entries after another: whoever makes them opens each directory once.
        for (name, mode) in [
            ("workspace", 0o755),
            ("tmp", 0o1777),
            ("tmp/home", 0o755),
            ("run", 0o755),
            ("run/lock", 0o755),
        ] {
            self.make(Path::new(name), SkeletonKind::Tenant { mode });
        }
        // A shown /var has a /var/tmp of its own, read-only: the box's is put over it.
        self.layout.masks_var_tmp = self.made.contains(Path::new("var"));
        let var_tmp = if self.layout.masks_var_tmp { VAR_TMP } else { "var/tmp" };
        self.make(Path::new(var_tmp), SkeletonKind::Tenant { mode: 0o1777 });
        self.layout.writable =
            ["workspace", "tmp", "run", "dev/shm", var_tmp].map(|p| c_string(p.as_ref())).to_vec();
        self.make(Path::new(OVERLAY), SkeletonKind::Closed);
        for name in ["lower", "queues", "work"] {
            self.make(&Path::new(OVERLAY).join(name), SkeletonKind::Directory);
        }
        self.make(&Path::new(OVERLAY).join("upper"), SkeletonKind::Tenant { mode: 0o755 });
        self.make(Path::new("dev/shm"), SkeletonKind::Tenant { mode: 0o1777 });
        for (name, target) in [
            ("fd", c"/proc/self/fd"),
            ("stdin", c"/proc/self/fd/0"),
            ("stdout", c"/proc/self/fd/1"),
            ("stderr", c"/proc/self/fd/2"),
        ] {
            self.make(&Path::new("dev").join(name), SkeletonKind::Symlink(target.to_owned()));
        }
    }

    fn devices(&mut self, devices: &[String]) {
        for device in devices {
            let target = strip_root(Path::new(device));
            self.make(&target, SkeletonKind::File);
            self.layout.devices.push(ShownPath {
                source: c_string(OsStr::new(device)),
                target: c_string(target.as_os_str()),
                unowned: false,
            });
        }
    }
}

/// `path` without its leading slash and without anything that could climb.
pub fn strip_root(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

fn relative(path: &Path) -> CString {
    c_string(strip_root(path).as_os_str())
}

/// A path as the kernel takes it. Paths come from directory listings and
/// profiles; a NUL cannot be in the former and is refused in the latter.
pub fn c_string(text: &OsStr) -> CString {
    let bytes: Vec<u8> = text.as_bytes().iter().copied().take_while(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

/// `path` as text for messages.
pub fn lossy(path: &CStr) -> String {
    path.to_string_lossy().into_owned()
}

/// As [`lossy`], with a leading slash: the root's own targets are relative, those a run asks for
/// absolute.
pub fn lossy_inside(target: &CStr) -> String {
    format!("/{}", lossy(target).trim_start_matches('/'))
}

/// The directory of layer `index` in a sandbox's own file system, which holds its parts.
pub fn layer_directory(index: usize) -> String {
    format!(".overlay/layer{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> RootView {
        RootView {
            hide: ["/root", "/home", "/var", "/etc/secret", "/etc/absent"]
                .map(str::to_owned)
                .to_vec(),
            keep: ["/var/lib/gems", "/var/lib/absent", "/var/lib/store/kept", "/sw"]
                .map(str::to_owned)
                .to_vec(),
            devices: vec!["/dev/null".to_owned()],
            proc_mask: vec!["/proc/keys".to_owned(), "/proc/irq".to_owned()],
        }
    }

    fn host_entries() -> Vec<(String, PathKind)> {
        [
            ("bin", PathKind::Symlink("usr/bin".into())),
            ("data", PathKind::Directory),
            ("dev", PathKind::Directory),
            ("etc", PathKind::Directory),
            ("home", PathKind::Directory),
            ("initrd.img", PathKind::Symlink("boot/initrd.img".into())),
            ("notes.txt", PathKind::Other),
            ("opt", PathKind::Directory),
            ("root", PathKind::Directory),
            ("srv-store", PathKind::Directory),
            ("tmp", PathKind::Directory),
            ("usr", PathKind::Directory),
            ("var", PathKind::Directory),
        ]
        .map(|(name, kind)| (name.to_owned(), kind))
        .to_vec()
    }

    fn host_layout() -> RootLayout {
        let kind_of = |path: &Path| match path.to_str() {
            Some("/var/lib/gems" | "/var/lib/store/kept" | "/sw") => Some(PathKind::Directory),
            _ => None,
        };
        let private = ["/srv-store", "/var/lib/store", "/var/lib/gems-not"].map(PathBuf::from);
        layout(Path::new("/"), &host_entries(), &view(), &private, &kind_of)
    }

    fn targets(shown: &[ShownPath]) -> Vec<&str> {
        shown.iter().map(|shown| shown.target.to_str().unwrap()).collect()
    }

    #[test]
    fn the_host_root_shows_system_directories_and_what_is_kept() {
        assert_eq!(targets(&host_layout().shown), ["etc", "opt", "usr", "var/lib/gems", "sw"]);
    }

    #[test]
    fn whatever_is_not_the_systems_at_the_top_level_is_not_there() {
        let layout = host_layout();
        let made: Vec<&str> =
            layout.skeleton.iter().map(|entry| entry.path.to_str().unwrap()).collect();
        for absent in ["data", "home", "initrd.img", "root", "srv-store", "notes.txt", "sys"] {
            assert!(!made.contains(&absent), "{absent} is shown");
        }
    }

    #[test]
    fn kernel_files_are_covered_as_what_they_are() {
        let masks = host_layout().masks;
        let masks: Vec<(&str, bool)> =
            masks.iter().map(|mask| (mask.target.to_str().unwrap(), mask.directory)).collect();
        assert_eq!(masks, [("proc/keys", false), ("proc/irq", true)]);
    }

    #[test]
    fn a_given_root_is_shown_whole_except_for_the_boxs_own_places() {
        let layout = layout(Path::new("/srv/rootfs"), &host_entries(), &view(), &[], &|_| None);
        assert_eq!(
            targets(&layout.shown),
            ["data", "etc", "home", "opt", "root", "srv-store", "usr", "var"]
        );
        assert_eq!(layout.shown[0].source, c"/srv/rootfs/data".to_owned());
        assert_eq!(layout.devices[0].source, c"/dev/null".to_owned(), "devices are the host's");
    }

    #[test]
    fn a_box_has_a_var_tmp_of_its_own_wherever_var_comes_from() {
        let given = layout(Path::new("/srv/rootfs"), &host_entries(), &view(), &[], &|_| None);
        for (layout, path) in [(host_layout(), "var/tmp"), (given, VAR_TMP)] {
            let own = layout.skeleton.iter().find(|entry| entry.path.to_str() == Ok(path));
            assert_eq!(own.unwrap().kind, SkeletonKind::Tenant { mode: 0o1777 });
            assert_eq!(layout.masks_var_tmp, path == VAR_TMP);
        }
    }

    #[test]
    fn hosts_are_the_boxs_own_only_where_the_roots_would_be_covered() {
        let hosts = MaskedPath { target: c"etc/hosts".to_owned(), directory: false };
        let other = MaskedPath { target: c"etc/hostname".to_owned(), directory: false };
        let directory = MaskedPath { target: c"etc/ssh".to_owned(), directory: true };
        let mut layout = host_layout();
        assert_eq!(layout.mask_for(&hosts), "dev/null");
        layout.keep_own_hosts();
        let own = layout.skeleton.iter().find(|entry| entry.path.to_str() == Ok(HOSTS));
        assert_eq!(own.unwrap().kind, SkeletonKind::Text(HOSTS_TEXT));
        let covers = [&hosts, &other, &directory].map(|path| layout.mask_for(path));
        assert_eq!(covers, [HOSTS, "dev/null", ".empty"]);
    }

    #[test]
    fn parents_are_made_before_their_children() {
        let layout = host_layout();
        let mut made = BTreeSet::new();
        for entry in &layout.skeleton {
            let path = PathBuf::from(entry.path.to_str().unwrap());
            let parent = path.parent().unwrap().to_owned();
            assert!(
                parent.as_os_str().is_empty() || made.contains(&parent),
                "{path:?} before its parent"
            );
            made.insert(path);
        }
    }
}
