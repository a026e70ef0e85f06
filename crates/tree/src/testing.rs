//! Shared by the tests of this crate: trees, their listings, and separate processes.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, mkdirat};
use tempfile::{TempDir, tempdir, tempdir_in};

use crate::walk::open_beneath;
use cofferdam_core::values::owner::Owner;

/// The owner of files in tests.
pub(super) const TENANT: Owner = Owner { uid: 10_001, gid: 10_002 };

/// Set in the environment of a test that runs in a separate process.
const OWN_PROCESS: &str = "COFFERDAM_TEST_OWN_PROCESS";

/// A directory in memory, as workspaces have: a disk would take seconds.
pub(super) fn in_memory() -> TempDir {
    tempdir_in("/dev/shm").or_else(|_| tempdir()).unwrap()
}

/// The directory `path`, opened.
pub(super) fn directory(path: &Path) -> OwnedFd {
    open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).unwrap()
}

/// Creates `levels` nested directories `d`, and a file in the innermost.
pub(super) fn make_deep(parent: &Path, levels: usize) {
    let mut here = directory(parent);
    for _ in 0..levels {
        mkdirat(&here, c"d", Mode::S_IRWXU).unwrap();
        here = open_beneath::open_directory(&here, c"d").unwrap();
    }
    open_beneath::create_file(&here, c"bottom").unwrap();
}

/// The number of nested directories `d`, and whether the file is in the innermost.
pub(super) fn depth(parent: &Path) -> (usize, bool) {
    let mut here = directory(parent);
    let mut levels = 0;
    while let Ok(child) = open_beneath::open_directory(&here, c"d") {
        here = child;
        levels += 1;
    }
    (levels, open_beneath::open_for_reading(here.as_fd(), c"bottom").is_ok())
}

/// One entry as a test compares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TreeEntry {
    /// A file's contents or a link's text.
    pub(super) contents: Vec<u8>,
    pub(super) mode: u32,
    pub(super) modified: (i64, i64),
    pub(super) owner: Owner,
}

/// The entry at `path` itself, no link followed.
pub(super) fn entry(path: &Path) -> TreeEntry {
    use std::os::unix::ffi::OsStrExt;
    let metadata = fs::symlink_metadata(path).unwrap();
    let contents = if metadata.is_symlink() {
        fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec()
    } else if metadata.is_file() {
        fs::read(path).unwrap()
    } else {
        Vec::new()
    };
    TreeEntry {
        contents,
        mode: metadata.mode(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        owner: Owner { uid: metadata.uid(), gid: metadata.gid() },
    }
}

/// All entries below `root`, by relative path. For shallow trees only.
pub(super) fn picture(root: &Path) -> BTreeMap<PathBuf, TreeEntry> {
    let mut entries = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for child in fs::read_dir(directory).unwrap() {
            let path = child.unwrap().path();
            let relative = path.strip_prefix(root).unwrap().to_owned();
            entries.insert(relative, entry(&path));
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                open.push(path);
            }
        }
    }
    entries
}

pub(super) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs `body` on a thread with its own mount namespace, whose mounts end with the thread.
pub(super) fn in_own_mounts(body: impl FnOnce() + Send + 'static) {
    let own = move || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        body();
    };
    std::thread::spawn(own).join().unwrap();
}

/// Mounts a tmpfs of 1 MiB at `point`.
pub(super) fn mount_tmpfs(point: &Path) {
    mount(None::<&str>, point, Some("tmpfs"), MsFlags::empty(), Some("size=1m")).unwrap();
}

/// Runs `body` on a thread that can give files away, but then cannot change their mode or time.
pub(super) fn without_rights_over_files<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let own = move || {
        caps::drop(None, caps::CapSet::Effective, caps::Capability::CAP_FOWNER).unwrap();
        body()
    };
    std::thread::spawn(own).join().unwrap()
}

/// Runs `body` and fails if it takes longer than 30 seconds.
pub(super) fn in_time<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(body()));
    result.recv_timeout(Duration::from_secs(30)).expect("it hangs, or it has failed")
}

/// What a test changes in its separate process.
#[derive(Debug, Clone, Copy)]
pub(super) enum OwnProcess {
    /// At most this many open descriptors.
    Descriptors(u64),
    /// No privilege: the tenant's ids.
    Unprivileged,
}

/// Runs `body` of the test `name` in a separate process, changed by `own`.
pub(super) fn in_own_process(name: &str, own: OwnProcess, body: impl FnOnce()) {
    if std::env::var_os(OWN_PROCESS).is_some() {
        if let OwnProcess::Descriptors(max) = own {
            use nix::sys::resource::{Resource, setrlimit};
            setrlimit(Resource::RLIMIT_NOFILE, max, max).unwrap();
        }
        return body();
    }
    // The magic link works for a user who cannot read the build directory.
    let mut command = Command::new("/proc/self/exe");
    command.args([name, "--exact"]).env(OWN_PROCESS, "1").current_dir("/");
    if let OwnProcess::Unprivileged = own {
        command.uid(TENANT.uid).gid(TENANT.gid);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
