//! Frees what dead sandboxes held, on a thread behind the response.
//!
//! The kernel frees the files of a tenant one by one: 250 ms for as many files as a sandbox may
//! have. The response does not wait for that, nor for the removal of cgroups.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, LazyLock};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use crate::cgroup::SandboxGroup;
use crate::files::sandbox_fs::SandboxFs;
use crate::files::watched_disk::WatchedDisk;
use crate::pool::net_namespaces::{NetNamespace, NetNamespaces};
use cofferdam_core::sync::permits::Permits;
use cofferdam_core::values::deadline::Deadline;

/// The kernel frees a file system of at most this size in one or two milliseconds.
const SMALL_BYTES_MAX: u64 = 16 << 20;
/// The same limit for the number of files and directories.
const SMALL_INODES_MAX: u64 = 512;
/// The number of large file systems freed at once, each with up to the disk limit of a sandbox. The
/// thread that cleans up the next one frees it itself.
const IN_PROGRESS_MAX: usize = 8;
/// The number of dead sandboxes that may wait for cleanup. The thread that drops the next one
/// cleans it up itself, before its response.
pub const BACKLOG_MAX: usize = 64;
/// Delays cleanup until the response is sent.
pub const RESPONSE_WAIT: Duration = Duration::from_millis(1);
/// How long the kernel may take to remove an empty cgroup.
const GROUP_REMOVE_WAIT: Duration = Duration::from_secs(2);

static IN_PROGRESS: LazyLock<Arc<Permits>> = LazyLock::new(|| Permits::new(IN_PROGRESS_MAX));

/// What a sandbox holds on the host besides its processes.
#[derive(Debug, Default)]
pub struct SandboxResources {
    /// Its file system.
    pub fs: Option<SandboxFs>,
    /// Its cgroup.
    pub group: Option<SandboxGroup>,
    /// Its network namespace.
    pub net: Option<NetNamespace>,
    /// The mount of a workspace that outlives it, for a look at the space left.
    pub workspace: Option<WatchedDisk>,
    /// Its mount namespace. This descriptor delays the unmounting to the cleanup; without it the
    /// kernel unmounts everything while the init dies, and the response waits for that.
    pub mounts: Option<OwnedFd>,
}

/// Passes dead sandboxes on to the cleanup thread. Without a thread it cleans up at once.
#[derive(Debug, Clone, Default)]
pub struct CleanupQueue {
    sender: Option<SyncSender<SandboxResources>>,
    backlog: Arc<AtomicUsize>,
    net_namespaces: Option<Arc<NetNamespaces>>,
}

/// Starts the cleanup thread. It ends when every clone of the queue is dropped.
pub(super) fn start(
    net_namespaces: &Arc<NetNamespaces>,
) -> io::Result<(CleanupQueue, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel(BACKLOG_MAX);
    let net_namespaces = Some(Arc::clone(net_namespaces));
    let queue = CleanupQueue { sender: Some(sender), backlog: Arc::default(), net_namespaces };
    let worker = CleanupQueue { sender: None, ..queue.clone() };
    let thread = Builder::new().name("cleanup".to_owned());
    let thread = thread.spawn(move || worker.run(&receiver))?;
    Ok((queue, thread))
}

impl CleanupQueue {
    /// The number of dead sandboxes in the queue or being cleaned up.
    pub(super) fn backlog(&self) -> &Arc<AtomicUsize> {
        &self.backlog
    }

    /// Cleans up `resources`: on the thread while the queue has room, else before this returns.
    pub fn push(&self, resources: SandboxResources) {
        let Some(sender) = &self.sender else { return self.clean_up(resources) };
        self.backlog.fetch_add(1, Ordering::Relaxed);
        let (TrySendError::Full(resources) | TrySendError::Disconnected(resources)) =
            match sender.try_send(resources) {
                Ok(()) => return,
                Err(refused) => refused,
            };
        self.backlog.fetch_sub(1, Ordering::Relaxed);
        self.clean_up(resources);
    }

    fn clean_up(&self, resources: SandboxResources) {
        let SandboxResources { fs, group, net, workspace, mounts } = resources;
        collect_files_in_sockets();
        // Before the file system, which is mounted in there.
        drop(mounts);
        drop(workspace);
        if let Some(fs) = fs {
            free(fs);
        }
        remove_group(group);
        if let (Some(namespaces), Some(net)) = (&self.net_namespaces, net) {
            namespaces.give_back(net);
        }
    }

    /// The thread: cleans up until every queue is dropped.
    fn run(&self, receiver: &Receiver<SandboxResources>) {
        while let Ok(resources) = receiver.recv() {
            // With a backlog there is no time to wait for the response.
            if self.backlog.load(Ordering::Relaxed) == 1 {
                sleep(RESPONSE_WAIT);
            }
            self.clean_up(resources);
            self.backlog.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Removes the cgroup of a dead sandbox. A group that stays is removed by the sweep at the end or
/// at the next start.
fn remove_group(group: Option<SandboxGroup>) {
    let removed = group.map(|mut group| group.remove(Deadline::after(GROUP_REMOVE_WAIT)));
    if let Some(Err(error)) = removed {
        log::error!("cgroup: {error}");
    }
}

/// Makes the kernel free files that only sockets of dead processes hold, in messages from one to
/// the other. The kernel collects them when any socket is closed; on a quiet host that can take
/// long.
fn collect_files_in_sockets() {
    drop(UnixStream::pair());
}

/// Frees `fs`, on a thread of its own if that takes long.
fn free(fs: SandboxFs) {
    let is_small = fs
        .used()
        .is_ok_and(|(bytes, inodes)| bytes <= SMALL_BYTES_MAX && inodes <= SMALL_INODES_MAX);
    let Some(slot) = (!is_small).then(|| IN_PROGRESS.try_enter()).flatten() else { return };
    let free = move || {
        drop(fs);
        drop(slot);
    };
    if let Err(error) = Builder::new().name("cleanup".to_owned()).spawn(free) {
        // The closure was dropped with the error, and the file system with it.
        log::warn!("cleanup: {error}");
    }
}
