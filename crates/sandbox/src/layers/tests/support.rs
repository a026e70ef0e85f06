//! What the tests of layers share.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, unlinkat};

use crate::host::state::StateDirectory;
use crate::layers::host::LayerHost;
use crate::layers::mounts::attributes::AttributeCalls;
use crate::layers::space::{DiskSpace, Storage};
use crate::layers::workspace_fs::WorkspaceFs;
use crate::plan::input::INSIDE_ID;
use crate::pool::host_id::HostId;
use cofferdam_tree::ExtendedAttributes;

pub const MIB: u64 = 1 << 20;
pub const LIMIT: DiskSpace = DiskSpace { bytes: 16 * MIB, inodes: 1_000 };

/// Whether these tests can run: as root.
pub fn is_root() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
    assert!(!required, "not root, and REQUIRE_PRIVILEGED=1");
    eprintln!("SKIP: not root");
    false
}

/// One for all tests.
pub fn layers() -> &'static LayerHost {
    static HOST: OnceLock<LayerHost> = OnceLock::new();
    HOST.get_or_init(|| LayerHost::open(&host_id()).unwrap())
}

pub fn host_id() -> HostId {
    HostId::acquire(&StateDirectory::open().unwrap()).unwrap()
}

pub fn workspace() -> WorkspaceFs {
    layers().create(LIMIT, Storage::Memory, &host_id()).unwrap()
}

/// Creates or replaces the file `path`, owned by the workspace's host id.
pub fn write(fs: &WorkspaceFs, path: &str, content: &[u8]) -> Result<(), Errno> {
    let flags = OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let file = openat(fs.tree(), path, flags, Mode::from_bits_truncate(0o644))?;
    own(fs, path)?;
    File::from(file)
        .write_all(content)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap()))
}

pub fn make(fs: &WorkspaceFs, path: &str) -> Result<(), Errno> {
    mkdirat(fs.tree(), path, Mode::from_bits_truncate(0o755))?;
    own(fs, path)
}

fn own(fs: &WorkspaceFs, path: &str) -> Result<(), Errno> {
    let id = fs.host_id().id();
    let flags = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
    fchownat(fs.tree(), path, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)), flags)
}

pub fn read(fs: &WorkspaceFs, path: &str) -> Result<String, Errno> {
    let mut text = String::new();
    File::from(open(fs.tree(), path)?).read_to_string(&mut text).unwrap();
    Ok(text)
}

pub fn open(at: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    openat(at, path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

pub fn remove(fs: &WorkspaceFs, path: &str) -> Result<(), Errno> {
    unlinkat(fs.tree(), path, UnlinkatFlags::NoRemoveDir)
}

pub fn status(at: impl AsFd, path: &str) -> Result<FileStat, Errno> {
    let path = CString::new(path).unwrap();
    fstatat(at, path.as_c_str(), nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// A path to what `directory` is, for the standard library.
pub fn path_of(directory: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()).into()
}

/// Everything below `root` as it is seen, by path: kind, mode, owner (`inside` for the host id `own`),
/// time of the last change, attributes, and contents or the text of a link.
pub fn listing(root: impl AsFd, own: u32) -> BTreeMap<PathBuf, String> {
    let top = path_of(root.as_fd());
    let mut pending = vec![PathBuf::new()];
    let mut found = BTreeMap::new();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(top.join(&directory)).unwrap() {
            let path = directory.join(entry.unwrap().file_name());
            let metadata = fs::symlink_metadata(top.join(&path)).unwrap();
            let owner = if metadata.uid() == own { INSIDE_ID } else { metadata.uid() };
            let kind = metadata.file_type();
            let content = if kind.is_file() {
                format!("{:?}", fs::read(top.join(&path)).unwrap())
            } else if kind.is_symlink() {
                format!("{:?}", fs::read_link(top.join(&path)).unwrap())
            } else {
                String::new()
            };
            // A fifo cannot be opened without waiting.
            let attributes = if kind.is_file() || kind.is_dir() {
                attributes(&top.join(&path))
            } else {
                String::new()
            };
            let (mode, time) = (metadata.mode(), (metadata.mtime(), metadata.mtime_nsec()));
            found.insert(path.clone(), format!("{mode:o} {owner} {time:?} {attributes} {content}"));
            if kind.is_dir() {
                pending.push(path);
            }
        }
    }
    found
}

/// The attributes that a user sets.
fn attributes(path: &Path) -> String {
    let Ok(file) = File::open(path) else { return String::new() };
    let names = AttributeCalls.names(file.as_fd()).unwrap();
    let own = names.iter().filter(|name| name.to_bytes().starts_with(b"user."));
    let mut values: Vec<_> =
        own.map(|name| (name, AttributeCalls.value(file.as_fd(), name).unwrap())).collect();
    values.sort();
    format!("{values:?}")
}

/// Waits until `fs` uses `bytes`: a process that another test starts has copies of all descriptors until
/// it executes its program, also of a file that was just removed.
pub fn wait_until_used(fs: &WorkspaceFs, bytes: u64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while fs.usage().unwrap().used_bytes != bytes {
        assert!(Instant::now() < deadline, "{:?}, not {bytes}", fs.usage());
        std::thread::sleep(Duration::from_millis(1));
    }
}
