//! The thread that holds the mounts of all workspaces, in a mount namespace of its own.
//!
//! Before Linux 6.15 a mount can be cloned, and be a layer of an overlay, only where it is attached. So
//! mounts are attached in a namespace that only this thread is in, whose root is an empty tmpfs: no
//! other process or thread sees them, and they are gone when the process is. On newer kernels this is
//! as fast as mounts that are attached nowhere, and drops a deep chain at once: each drop of a
//! detached mount waits for every CPU.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, chroot, fchdir, mkdir, pivot_root};

use super::calls;
use super::chain_trees::ChainTrees;
use crate::layers::error::LayerError;
use crate::sys;
use cofferdam_core::SetupFailure;

/// The longest wait for the thread. Its calls take microseconds each; a wait this long means that the
/// kernel is stuck.
const CALL_WAIT: Duration = Duration::from_secs(30);
/// It makes system calls only.
const STACK_BYTES: usize = 128 << 10;
/// An empty directory of the stage.
pub(in crate::layers) const NOTHING: &str = "nothing";

type Job = Box<dyn FnOnce() + Send>;

/// What the thread that closes what was unmounted gets.
#[derive(Debug)]
enum Closing {
    Mount(OwnedFd),
    /// Tells that everything before it is closed. The thread goes on when the other has heard it.
    Tell(SyncSender<()>),
}

/// The thread, until the last clone is dropped. Paths in its jobs are relative to its root.
#[derive(Debug)]
pub(in crate::layers) struct Stage {
    jobs: Sender<Job>,
    /// To the thread that closes what was unmounted: to free a large file system takes long.
    unmounted: Sender<Closing>,
    /// Only the thread's jobs lock it.
    trees: Arc<Mutex<ChainTrees>>,
    next: AtomicU64,
}

impl Stage {
    /// Starts the thread.
    pub(in crate::layers) fn start() -> Result<Arc<Self>, LayerError> {
        let (jobs, received) = channel::<Job>();
        let (unmounted, closed) = channel();
        let (trees, next) = (Arc::default(), AtomicU64::new(0));
        let stage = Arc::new(Self { jobs, unmounted, trees, next });
        let (tell, told) = channel();
        start_thread("mounts", move || {
            let entered = enter();
            let failed = entered.is_err();
            // Without a receiver the result interests no one.
            let _ = tell.send(entered);
            if !failed {
                received.into_iter().for_each(|job| job());
            }
        })?;
        start_thread("unmounted", move || closed.into_iter().for_each(close))?;
        told.recv_timeout(CALL_WAIT).map_err(|_| no_answer("private mounts"))??;
        Ok(stage)
    }

    /// Runs `job` on the thread and returns its result.
    pub(in crate::layers) fn call<T: Send + 'static>(
        &self,
        step: &'static str,
        job: impl FnOnce() -> Result<T, LayerError> + Send + 'static,
    ) -> Result<T, LayerError> {
        let (tell, told) = channel();
        self.later(move || {
            // A result that comes too late is dropped.
            let _ = tell.send(job());
        });
        told.recv_timeout(CALL_WAIT).map_err(|_| no_answer(step))?
    }

    /// Runs `job` on the thread, after those before it.
    pub(in crate::layers) fn later(&self, job: impl FnOnce() + Send + 'static) {
        // The thread ends only after `self`.
        let _ = self.jobs.send(Box::new(job));
    }

    /// Waits until all that was dropped before is unmounted. Until then an overlay keeps files in use that are removed
    /// from its layers.
    pub(super) fn settle(&self) {
        if self.settled().recv_timeout(CALL_WAIT) == Err(RecvTimeoutError::Timeout) {
            log::warn!("file systems that were unmounted are not freed after {CALL_WAIT:?}");
        }
    }

    /// Receives when all that was dropped before is unmounted. Nothing that is dropped later is until then.
    pub(in crate::layers) fn settled(&self) -> Receiver<()> {
        let (tell, told) = sync_channel(0);
        let unmounted = self.unmounted.clone();
        self.later(move || {
            // Without that thread everything is closed.
            let _ = unmounted.send(Closing::Tell(tell));
        });
        told
    }

    /// A new name for a mount, which is not there yet.
    pub(in crate::layers) fn name(self: &Arc<Self>) -> MountName {
        MountName { stage: Arc::clone(self), path: self.next_path() }
    }

    /// A new path for a mount, which its user detaches.
    pub(super) fn next_path(&self) -> String {
        self.next.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// The trees of chains, for the thread.
    pub(super) fn trees(&self) -> MutexGuard<'_, ChainTrees> {
        locked(&self.trees)
    }
}

/// The place of one mount on the stage. When it is dropped, the thread detaches the mount.
#[derive(Debug)]
pub(in crate::layers) struct MountName {
    stage: Arc<Stage>,
    path: String,
}

impl MountName {
    /// Its path on the thread.
    pub(in crate::layers) fn path(&self) -> &str {
        &self.path
    }

    pub(in crate::layers) fn stage(&self) -> &Arc<Stage> {
        &self.stage
    }
}

impl MountName {
    /// Detaches the mount, if there is one. When this returns, it is unmounted, unless something else
    /// holds it.
    pub(in crate::layers) fn detach(&self) -> Result<(), LayerError> {
        let path = self.path.clone();
        self.stage.call("detach mount", move || {
            match umount2(path.as_str(), MntFlags::MNT_DETACH) {
                Ok(()) | Err(Errno::ENOENT | Errno::EINVAL) => Ok(()),
                Err(errno) => Err(LayerError::of_errno("detach mount")(errno)),
            }
        })
    }
}

impl Drop for MountName {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        let (unmounted, trees) = (self.stage.unmounted.clone(), Arc::clone(&self.stage.trees));
        self.stage.later(move || {
            let mount = open_directory(&path, OFlag::O_PATH);
            locked(&trees).forget(&path).iter().for_each(|clones| detach_tree(clones));
            // Nothing is there if the mount was not made.
            let _ = umount2(path.as_str(), MntFlags::MNT_DETACH);
            let _ = fs::remove_dir(&path);
            if let Ok(mount) = mount {
                // Without that thread it is closed here.
                let _ = unmounted.send(Closing::Mount(mount));
            }
        });
    }
}

fn close(closing: Closing) {
    match closing {
        Closing::Mount(mount) => drop(mount),
        Closing::Tell(tell) => {
            // The one who waited may have given up.
            let _ = tell.send(());
        }
    }
}

/// On the thread: detaches a tree of clones, or one of its clones.
pub(super) fn detach_tree(path: &str) {
    // It is attached, so it can be detached.
    let _ = umount2(path, MntFlags::MNT_DETACH);
    // Trees share the directories on which their clones are attached.
    if !path.contains('/') {
        let _ = fs::remove_dir(path);
    }
}

/// On the thread: attaches `mount` at the new directory `path`.
pub(in crate::layers) fn attach_new(mount: impl AsFd, path: &str) -> Result<(), LayerError> {
    mkdir(path, Mode::S_IRWXU).map_err(LayerError::of_errno("make mount point"))?;
    attach(mount, path)
}

/// On the thread: attaches `mount` at the directory `path`.
pub(in crate::layers) fn attach(mount: impl AsFd, path: &str) -> Result<(), LayerError> {
    let path = CString::new(path).unwrap_or_default();
    calls::attach(mount.as_fd(), &path).map_err(LayerError::of_io("attach mount"))
}

/// On the thread: opens the directory `path`, without following a link at its end.
pub(in crate::layers) fn open_directory(path: &str, flags: OFlag) -> Result<OwnedFd, LayerError> {
    let flags = flags | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).map_err(LayerError::of_errno("open directory of a layer"))
}

fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), LayerError> {
    let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work);
    thread.map(drop).map_err(LayerError::of_io("start the thread of mounts"))
}

/// Gives the calling thread a mount namespace in which only an empty tmpfs is mounted: the host's
/// mounts would be kept alive by it.
fn enter() -> Result<(), LayerError> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(LayerError::of_errno("mount namespace"))?;
    let none = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, "/", none, private, none).map_err(LayerError::of_errno("private mounts"))?;
    let options = [(c"mode", c"0700"), (c"size", c"16m"), (c"nr_inodes", c"1000000")];
    let root = sys::detached_tmpfs(&options).map_err(LayerError::of_io("mount tmpfs"))?;
    attach(&root, "/")?;
    // The root of this thread is still the one that is covered now.
    fchdir(&root).map_err(LayerError::of_errno("enter tmpfs"))?;
    drop(root);
    leave_old_root().map_err(LayerError::of_io("leave the host's root"))?;
    mkdir(NOTHING, Mode::S_IRWXU).map_err(LayerError::of_errno("make mount point"))
}

/// Makes the working directory, the root of a mount, the root of the calling thread.
fn leave_old_root() -> io::Result<()> {
    match pivot_root(".", ".") {
        // Afterwards the old root lies on top of the new one.
        Ok(()) => umount2(".", MntFlags::MNT_DETACH)?,
        // An initramfs as the host's root cannot be left; its mounts cannot be unmounted anyway.
        Err(Errno::EINVAL) => chroot(".")?,
        Err(errno) => return Err(errno.into()),
    }
    Ok(chdir("/")?)
}

fn locked(trees: &Mutex<ChainTrees>) -> MutexGuard<'_, ChainTrees> {
    // A tree of which less is noted than is attached is only extended again.
    trees.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_answer(step: &'static str) -> LayerError {
    LayerError::Failed(SetupFailure::from_words(step, "the thread of mounts does not answer"))
}
