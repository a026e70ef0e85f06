//! A file system of a workspace, mounted in a mount namespace of a thread of its own.

use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};

use cofferdam_core::{MountedWorkspace, WorkspacePath};
use cofferdam_sandbox::engine::{HostId, detached_mount};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::host::Host;

/// A tmpfs with the directories `workspace` and `tmp`, which belong to a host id of its own.
#[derive(Debug)]
pub struct MountedFiles {
    host_id: HostId,
    path: WorkspacePath,
    own_bytes_max: u64,
    root: File,
    /// Asks the thread for copies of both mounts.
    ask: Sender<Sender<[OwnedFd; 2]>>,
}

impl MountedFiles {
    /// A file system of `bytes_max` bytes, shown at `path`.
    pub fn new(host: &Host, path: &str, bytes_max: u64) -> Self {
        let host_id = host.host_id();
        let (ask, asked) = channel::<Sender<[OwnedFd; 2]>>();
        let (tell, told) = channel();
        let owner = host_id.id();
        std::thread::spawn(move || {
            let place = tempfile::tempdir().unwrap();
            mount_files(place.path(), bytes_max, owner);
            tell.send(File::open(place.path()).unwrap()).unwrap();
            for answer in asked {
                let copy = |name| {
                    let directory = File::open(place.path().join(name)).unwrap();
                    detached_mount(directory.as_fd()).unwrap()
                };
                answer.send(["workspace", "tmp"].map(copy)).unwrap();
            }
            nix::mount::umount2(place.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
        });
        let path = WorkspacePath::parse(path).unwrap();
        Self { host_id, path, own_bytes_max: 64 << 20, root: told.recv().unwrap(), ask }
    }

    /// Bounds the sandboxes' own file systems.
    pub fn own_bytes_max(mut self, bytes: u64) -> Self {
        self.own_bytes_max = bytes;
        self
    }

    /// The host id that the files belong to.
    pub fn host_id(&self) -> &HostId {
        &self.host_id
    }

    /// A path of the host that leads into the file system.
    pub fn at(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd())).join(path)
    }

    /// The mounts for one sandbox.
    pub fn mounts(&self) -> MountedWorkspace {
        let (answer, answered) = channel();
        self.ask.send(answer).unwrap();
        let [workspace, tmp] = answered.recv().unwrap();
        MountedWorkspace {
            workspace,
            tmp,
            path: self.path.clone(),
            others: Vec::new(),
            own_bytes_max: self.own_bytes_max,
            own_inodes_max: 4096,
        }
    }
}

fn mount_files(place: &Path, bytes_max: u64, owner: u32) {
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    let options = format!("mode=0755,size={bytes_max},nr_inodes=4096");
    mount(Some("tmpfs"), place, Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).unwrap();
    for (name, mode) in [("workspace", 0o755), ("tmp", 0o1777), ("tmp/home", 0o755)] {
        let path = place.join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
    }
}
