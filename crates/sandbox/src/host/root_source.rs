//! The root of sandboxes, and what is read from the host once, before the first sandbox.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::files::layers::RootLayers;
use crate::files::masked_paths::MaskedPaths;
use crate::files::programs::open_file;
use crate::files::root_directory::RootDirectory;
use crate::plan::builtin_profile::builtin_profile;
use crate::plan::rootfs;
use crate::plan::rootfs::{RootLayout, c_string};
use cofferdam_core::SetupFailure;
use cofferdam_seccomp::filter::Filter;
use cofferdam_seccomp::profile::Profile;

/// Every root has one of these directories. The root of the sandbox is mounted on it until it
/// becomes the root.
const MOUNTPOINTS: [&str; 4] = ["/tmp", "/mnt", "/run", "/var"];

/// The largest file of the root that is read, in bytes.
const ROOT_FILE_BYTES_MAX: u64 = 8 << 20;

/// The root file system that sandboxes see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootSource {
    /// That of the host, read-only and masked.
    Host,
    /// This directory; nothing of the host is visible.
    Directory(PathBuf),
}

impl RootSource {
    /// Its path on the host.
    pub fn path(&self) -> &Path {
        match self {
            Self::Host => Path::new("/"),
            Self::Directory(directory) => directory,
        }
    }
}

/// Whether a sysctl suggests that user namespaces may be refused here. It only decides whether to
/// try; the trial decides the rest.
pub fn user_namespaces_are_doubtful() -> bool {
    let reads = |path: &str, text: &str| {
        std::fs::read_to_string(path).is_ok_and(|value| value.trim() == text)
    };
    reads("/proc/sys/user/max_user_namespaces", "0")
        || reads("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")
}

/// The root that sandboxes see: its tree, its layout, and what is masked and layered in it.
#[derive(Debug)]
pub struct SandboxRoot {
    /// Its directory on the host.
    pub directory: RootDirectory,
    /// How sandboxes see it.
    pub layout: RootLayout,
    /// What sandboxes do not see of it.
    pub masked: MaskedPaths,
    /// The directories of it that sandboxes may write to.
    pub layers: RootLayers,
    /// Whether it is not the host's own.
    is_given: bool,
}

impl SandboxRoot {
    /// Reads the root of `source`. Sandboxes do not see the `private` paths.
    pub fn open(source: &RootSource, profile: &Profile, private: &[PathBuf]) -> io::Result<Self> {
        let directory = RootDirectory::open(source.path())?;
        let is_given = *source != RootSource::Host;
        // The real path too: shown trees are compared with it.
        let real = private.iter().filter_map(|path| path.canonicalize().ok());
        let private: Vec<PathBuf> = private.iter().cloned().chain(real).collect();
        let (base, entries) = (directory.path(), directory.entries()?);
        let kind_of = |path: &Path| rootfs::kind_at(&base.join(rootfs::strip_root(path)));
        let mut layout = rootfs::layout(base, &entries, &profile.root, &private, &kind_of);
        // A root directory that the operator chose hides nothing.
        let hide = if is_given { &[] } else { &profile.root.hide[..] };
        let hidden: Vec<PathBuf> = hide.iter().map(PathBuf::from).collect();
        let masked = MaskedPaths::new(&layout, &hidden, &private)?;
        if masked.is_masked_mount(&base.join("etc/hosts"))? {
            layout.keep_own_hosts();
        }
        Ok(Self { directory, layout, masked, layers: RootLayers::default(), is_given })
    }

    /// Notes which of the shown trees are mounted without owners.
    pub fn show_unowned(&mut self, trees: &[bool]) {
        self.layout.show_unowned(trees);
        self.masked.trust_unowned(trees);
    }

    /// The contents of the file that `path`, absolute, leads to in the root; none of a file that is larger
    /// than [`ROOT_FILE_BYTES_MAX`].
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        let (_, file) = open_file(&self.directory, Path::new(path))?;
        let mut bytes = Vec::new();
        file.take(ROOT_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
        Some(bytes).filter(|bytes| bytes.len() as u64 <= ROOT_FILE_BYTES_MAX)
    }

    /// The path, links resolved, of the file that `path`, absolute, leads to in the root.
    pub fn file(&self, path: &str) -> Option<PathBuf> {
        open_file(&self.directory, Path::new(path)).map(|(inside, _)| inside)
    }

    /// A copy of the mounts of a root other than the host's, for one sandbox to attach.
    pub fn detached_mount(&self) -> Result<Option<OwnedFd>, SetupFailure> {
        if !self.is_given {
            return Ok(None);
        }
        let mount = self.directory.detached();
        mount.map(Some).map_err(|error| SetupFailure::from_io("open root", &error))
    }
}

/// The filter of the init, part of this program.
pub fn init_filter() -> Result<Filter, SetupFailure> {
    let profile = builtin_profile("init")
        .map_err(|error| SetupFailure::from_words("seccomp init", error.to_string()))?;
    Ok(profile.filter)
}

/// Whether this kernel has POSIX message queues.
pub fn has_message_queues() -> bool {
    Path::new("/proc/sys/fs/mqueue").exists()
}

/// A directory to mount the root of a sandbox on.
pub fn mountpoint() -> io::Result<CString> {
    let found = MOUNTPOINTS.into_iter().find(|path| Path::new(path).is_dir());
    found.map(|path| c_string(path.as_ref())).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The highest capability that this kernel knows.
pub fn last_capability() -> io::Result<u32> {
    let text = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap")?;
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}
