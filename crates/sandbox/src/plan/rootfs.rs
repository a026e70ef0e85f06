//! What a sandbox shows of a root file system: skeleton, binds and masks, as data.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use cofferdam_seccomp::profile::{RootView, SYSTEM};

/// The kind of a path in the real root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathKind {
    /// A directory.
    Directory,
    /// A symbolic link and its target.
    Symlink(PathBuf),
    /// Anything else.
    Other,
}

/// One entry of the sandbox's own file system, created before anything is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkeletonEntry {
    /// Relative to the sandbox's root; parents come first.
    pub path: CString,
    /// What to create.
    pub kind: SkeletonKind,
}

/// The kind of a skeleton entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkeletonKind {
    /// A directory that root owns: the tenant can read it but not write.
    Directory,
    /// A directory that root owns and the tenant cannot enter.
    Closed,
    /// A directory that the tenant owns, with this mode.
    Tenant { mode: u32 },
    /// An empty file, as a mount point.
    File,
    /// A file that root owns, with this text.
    Text(&'static str),
    /// A symbolic link.
    Symlink(CString),
}

/// A host path shown in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownPath {
    /// Absolute, on the host.
    pub source: CString,
    /// Relative to the sandbox's root.
    pub target: CString,
    /// Whether it is mounted with IDs mapped so that its files have no owner.
    pub unowned: bool,
}

/// A path that a sandbox hides under an empty file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedPath {
    /// Relative to the sandbox's root.
    pub target: CString,
    /// Whether it is a directory.
    pub directory: bool,
}

/// The layout of a sandbox's root, computed once per root and profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootLayout {
    /// The entries to create, parents first.
    pub skeleton: Vec<SkeletonEntry>,
    /// Directories shown read-only.
    pub shown: Vec<ShownPath>,
    /// The tenant's own directories, relative to the sandbox's root, none below another.
    pub writable: Vec<CString>,
    /// Device nodes shown.
    pub devices: Vec<ShownPath>,
    /// The masked paths of every sandbox.
    pub masks: Vec<MaskedPath>,
    /// Whether [`VAR_TMP`] is mounted over `/var/tmp`.
    pub masks_var_tmp: bool,
    /// Whether [`HOSTS`] is mounted over `/etc/hosts` if that is masked.
    pub masks_hosts: bool,
}

impl RootLayout {
    /// Gives every sandbox an `/etc/hosts` of its own: the root's is a mount of its own, as in
    /// containers, and is masked.
    pub fn keep_own_hosts(&mut self) {
        self.masks_hosts = true;
        let path = c_string(OsStr::new(HOSTS));
        self.skeleton.push(SkeletonEntry { path, kind: SkeletonKind::Text(HOSTS_TEXT) });
    }

    /// Sets which trees are mounted so that their files have no owner.
    pub fn show_unowned(&mut self, unowned: &[bool]) {
        for (shown, unowned) in self.shown.iter_mut().zip(unowned) {
            shown.unowned = *unowned;
        }
    }

    /// Whether `target` is below a tree without owners, where root has no more rights than a
    /// tenant.
    pub fn is_below_unowned(&self, target: &CStr) -> bool {
        let below = |tree: &[u8]| {
            target.to_bytes().strip_prefix(tree).is_some_and(|rest| rest.starts_with(b"/"))
        };
        self.shown.iter().any(|shown| shown.unowned && below(shown.target.to_bytes()))
    }

    /// The entry of the sandbox's own file system that covers `path`.
    pub fn mask_for(&self, path: &MaskedPath) -> &'static str {
        match path.directory {
            true => EMPTY,
            false if self.masks_hosts && path.target.as_c_str() == HOSTS_TARGET => HOSTS,
            false => "dev/null",
        }
    }
}

/// The sandbox's own `/var/tmp` if `/var` is the root's.
pub const VAR_TMP: &str = ".var-tmp";

/// The sandbox's own `/etc/hosts`, if the root's is masked.
const HOSTS: &str = ".hosts";
const HOSTS_TEXT: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";
const HOSTS_TARGET: &CStr = c"etc/hosts";
/// Where a sandbox's message queues are mounted; the tenant cannot enter it.
pub const QUEUES: &CStr = c".overlay/queues";

/// Where the terminals of a sandbox are mounted.
pub const TERMINALS: &CStr = c"dev/pts";

/// The directory that covers masked directories.
const EMPTY: &str = ".empty";
/// Holds the overlay's layers and the message queues.
const OVERLAY: &str = ".overlay";
/// The copy of a program that has lost its name on the host.
pub const PROGRAM: &CStr = c".program";
const PROGRAM_NAME: &str = ".program";

/// Top-level names that are always the sandbox's own. If the real root had a link at one of them,
/// its author could redirect steps that run as root.
const OWN: [&str; 11] =
    ["dev", "proc", "run", "sys", "tmp", "workspace", EMPTY, HOSTS, OVERLAY, PROGRAM_NAME, VAR_TMP];

/// Lays out the sandbox's root. `base` is `/` or a given root, and `entries` are its top-level
/// names. `kind_of` returns the kind of a path below `base`, as named in the sandbox. `private` are
/// host paths of the service itself; [`masked_paths`](crate::files::masked_paths) looks for them
/// below the shown trees.
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
    // A given root is shown whole; of the host's only the system directories are.
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
                draft.add(Path::new(name), SkeletonKind::Symlink(c_string(target.as_os_str())));
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
        // Kernel files are the same in every `/proc`, so the host's tells their kind.
        let directory = kind_at(Path::new(path)) == Some(PathKind::Directory);
        draft.layout.masks.push(MaskedPath { target: relative(Path::new(path)), directory });
    }
    draft.layout
}

/// The kind of `path`.
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
    /// Adds `path` (relative) and, before it, the parents that are missing.
    fn add(&mut self, path: &Path, kind: SkeletonKind) {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|parent| !self.made.contains(*parent)) {
            self.add(parent, SkeletonKind::Directory);
        }
        if self.made.insert(path.to_owned()) {
            self.layout.skeleton.push(SkeletonEntry { path: c_string(path.as_os_str()), kind });
        }
    }

    /// Shows the directory `path` (absolute, as named in the sandbox) read-only.
    fn show(&mut self, path: &Path) {
        let target = strip_root(path);
        self.add(&target, SkeletonKind::Directory);
        let source = self.base.join(&target);
        self.layout.shown.push(ShownPath {
            source: c_string(source.as_os_str()),
            target: c_string(target.as_os_str()),
            unowned: false,
        });
    }

    /// Adds the directories of every sandbox.
    fn own_directories(&mut self) {
        for name in ["dev", "proc", EMPTY] {
            self.add(Path::new(name), SkeletonKind::Directory);
        }
        // Grouped by directory, so that each directory is opened once when they are created.
        for (name, mode) in [
            ("workspace", 0o755),
            ("tmp", 0o1777),
            ("tmp/home", 0o755),
            ("run", 0o755),
            ("run/lock", 0o755),
        ] {
            self.add(Path::new(name), SkeletonKind::Tenant { mode });
        }
        // A shown /var has a read-only /var/tmp: the sandbox's is mounted over it.
        self.layout.masks_var_tmp = self.made.contains(Path::new("var"));
        let var_tmp = if self.layout.masks_var_tmp { VAR_TMP } else { "var/tmp" };
        self.add(Path::new(var_tmp), SkeletonKind::Tenant { mode: 0o1777 });
        self.layout.writable =
            ["workspace", "tmp", "run", "dev/shm", var_tmp].map(|p| c_string(p.as_ref())).to_vec();
        self.add(Path::new(OVERLAY), SkeletonKind::Closed);
        for name in ["lower", "queues", "work"] {
            self.add(&Path::new(OVERLAY).join(name), SkeletonKind::Directory);
        }
        self.add(&Path::new(OVERLAY).join("upper"), SkeletonKind::Tenant { mode: 0o755 });
        self.add(Path::new("dev/shm"), SkeletonKind::Tenant { mode: 0o1777 });
        for (name, target) in [
            ("fd", c"/proc/self/fd"),
            ("stdin", c"/proc/self/fd/0"),
            ("stdout", c"/proc/self/fd/1"),
            ("stderr", c"/proc/self/fd/2"),
        ] {
            self.add(&Path::new("dev").join(name), SkeletonKind::Symlink(target.to_owned()));
        }
    }

    fn devices(&mut self, devices: &[String]) {
        for device in devices {
            let target = strip_root(Path::new(device));
            self.add(&target, SkeletonKind::File);
            self.layout.devices.push(ShownPath {
                source: c_string(OsStr::new(device)),
                target: c_string(target.as_os_str()),
                unowned: false,
            });
        }
    }
}

/// `path` without its leading slash and without `..`.
pub fn strip_root(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

fn relative(path: &Path) -> CString {
    c_string(strip_root(path).as_os_str())
}

/// Converts a path for the kernel. Paths come from directory listings, which cannot contain a NUL,
/// and from profiles, which refuse one.
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
    fn top_level_entries_that_are_not_the_systems_are_not_shown() {
        let layout = host_layout();
        let made: Vec<&str> =
            layout.skeleton.iter().map(|entry| entry.path.to_str().unwrap()).collect();
        for absent in ["data", "home", "initrd.img", "root", "srv-store", "notes.txt", "sys"] {
            assert!(!made.contains(&absent), "{absent} is shown");
        }
    }

    #[test]
    fn kernel_files_are_masked_by_their_kind() {
        let masks = host_layout().masks;
        let masks: Vec<(&str, bool)> =
            masks.iter().map(|mask| (mask.target.to_str().unwrap(), mask.directory)).collect();
        assert_eq!(masks, [("proc/keys", false), ("proc/irq", true)]);
    }

    #[test]
    fn a_given_root_is_shown_whole_except_for_the_sandboxs_own_directories() {
        let layout = layout(Path::new("/srv/rootfs"), &host_entries(), &view(), &[], &|_| None);
        assert_eq!(
            targets(&layout.shown),
            ["data", "etc", "home", "opt", "root", "srv-store", "usr", "var"]
        );
        assert_eq!(layout.shown[0].source, c"/srv/rootfs/data".to_owned());
        assert_eq!(layout.devices[0].source, c"/dev/null".to_owned(), "devices are the host's");
    }

    #[test]
    fn a_sandbox_has_its_own_var_tmp_with_any_var() {
        let given = layout(Path::new("/srv/rootfs"), &host_entries(), &view(), &[], &|_| None);
        for (layout, path) in [(host_layout(), "var/tmp"), (given, VAR_TMP)] {
            let own = layout.skeleton.iter().find(|entry| entry.path.to_str() == Ok(path));
            assert_eq!(own.unwrap().kind, SkeletonKind::Tenant { mode: 0o1777 });
            assert_eq!(layout.masks_var_tmp, path == VAR_TMP);
        }
    }

    #[test]
    fn hosts_are_the_sandboxs_own_only_if_the_roots_are_masked() {
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
    fn parents_come_before_their_children() {
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
