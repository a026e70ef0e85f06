//! What the tests of this module share: trees, their pictures, and processes of their own.

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

/// The owner tests give files to.
pub(super) const TENANT: Owner = Owner { uid: 10_001, gid: 10_002 };

/// Set in the environment of a test that runs in a process of its own.
const OWN_PROCESS: &str = "COFFERDAM_TEST_OWN_PROCESS";

/// Where workspaces lie, in memory: a disk would take seconds.
pub(super) fn in_memory() -> TempDir {
    tempdir_in("/dev/shm").or_else(|_| tempdir()).unwrap()
}

/// The directory `path`, opened.
pub(super) fn directory(path: &Path) -> OwnedFd {
    open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).unwrap()
}

/// Makes `levels` directories `d`, each within the one before, and a file in the last.
pub(super) fn make_deep(parent: &Path, levels: usize) {
    let mut here = directory(parent);
    for _ in 0..levels {
        mkdirat(&here, c"d", Mode::S_IRWXU).unwrap();
        here = open_beneath::open_directory(&here, c"d").unwrap();
    }
    open_beneath::create_file(&here, c"bottom").unwrap();
}

/// How many directories `d` lie within each other, and whether the file is in the last.
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

/// Everything below `root`, by relative path. For shallow trees only.
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

/// Runs `body` where mounts are its own: a thread that unshares takes them with it at its end.
pub(super) fn in_own_mounts(body: impl FnOnce() + Send + 'static) {
    let own = move || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        body();
    };
    std::thread::spawn(own).join().unwrap();
}

/// A fresh tmpfs of 1 MiB at `point`.
pub(super) fn mount_tmpfs(point: &Path) {
    mount(None::<&str>, point, Some("tmpfs"), MsFlags::empty(), Some("size=1m")).unwrap();
}

/// Runs `body` on a thread that may give files away, and then neither change their mode nor time.
pub(super) fn without_rights_over_files<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let own = move || {
        caps::drop(None, caps::CapSet::Effective, caps::Capability::CAP_FOWNER).unwrap();
        body()
    };
    std::thread::spawn(own).join().unwrap()
}

/// Runs `body` and fails when it takes longer than any of these should.
pub(super) fn in_time<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(body()));
    result.recv_timeout(Duration::from_secs(30)).expect("it hangs, or it has failed")
}

/// What a test changes for the process it runs in.
#[derive(Debug, Clone, Copy)]
pub(super) enum OwnProcess {
    /// At most this many open descriptors.
    Descriptors(u64),
    /// No privilege: the tenant's ids.
    Unprivileged,
}

/// Runs `body` of the test called `name` in a process of its own, changed as `own` says.
pub(super) fn in_own_process(name: &str, own: OwnProcess, body: impl FnOnce()) {
    if std::env::var_os(OWN_PROCESS).is_some() {
        if let OwnProcess::Descriptors(max) = own {
            use nix::sys::resource::{Resource, setrlimit};
            setrlimit(Resource::RLIMIT_NOFILE, max, max).unwrap();
        }
        return body();
    }
    // The magic link works for a user who may not look into the build directory.
    let mut command = Command::new("/proc/self/exe");
    command.args([name, "--exact"]).env(OWN_PROCESS, "1").current_dir("/");
    if let OwnProcess::Unprivileged = own {
        command.uid(TENANT.uid).gid(TENANT.gid);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
