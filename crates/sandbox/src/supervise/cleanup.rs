//! The end of what a dead box leaves, behind the answer where there is somebody to do it.
//!
//! The kernel frees what a tenant has built one by one: a quarter of a second for as many files as it
//! may have. Nobody who waits for the answer is to pay for that, nor for the removal of cgroups.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use super::undying::Undying;
use crate::cgroup::BoxGroup;
use crate::files::sandbox_fs::SandboxFs;
use crate::pool::net_namespaces::{NetNamespace, NetNamespaces};
use cofferdam_core::SetupFailure;
use cofferdam_core::sync::permits::Permits;
use cofferdam_core::values::deadline::Deadline;

/// What is freed in less than a millisecond or two.
const SMALL_BYTES_MAX: u64 = 16 << 20;
/// The same, in files and directories.
const SMALL_INODES_MAX: u64 = 512;
/// As many large ones may be going at once, each with all the bytes that a box may have; the next
/// one's answer waits for its own.
const GOING_MAX: usize = 8;
/// As many dead boxes may wait to be cleared away; the next one's answer waits for its own.
pub const BACKLOG_MAX: usize = 64;
/// What an answer takes to get out: nobody is cleared away in its way.
const ANSWER_WAIT: Duration = Duration::from_millis(1);
/// How long an empty cgroup may take to go.
const GROUP_REMOVE_WAIT: Duration = Duration::from_secs(2);

static GOING: LazyLock<Arc<Permits>> = LazyLock::new(|| Permits::new(GOING_MAX));

/// What there is of a box when nothing in it is alive.
#[derive(Debug, Default)]
pub struct Remnants {
    /// Its file system.
    pub fs: Option<SandboxFs>,
    /// Its cgroup.
    pub group: Option<BoxGroup>,
    /// Its network namespace.
    pub net: Option<NetNamespace>,
    /// Its mount namespace: keeps what is mounted in there until it is cleared away. Its init would
    /// otherwise take it all down before it is dead, with us waiting.
    pub mounts: Option<OwnedFd>,
}

/// Who clears remnants away: a thread, once it is started, and until then whoever leaves them.
#[derive(Debug, Default)]
pub struct Disposal {
    thread: OnceLock<(Sender, JoinHandle<()>)>,
    undying: Undying,
}

/// Leaves remnants to the thread, if there is one.
#[derive(Debug, Clone, Default)]
pub struct Sender {
    queue: Option<SyncSender<Remnants>>,
    backlog: Arc<AtomicUsize>,
    net_namespaces: Option<Arc<NetNamespaces>>,
    undying: Undying,
}

impl Disposal {
    /// Starts the thread, unless it was. It gives network namespaces back to `net_namespaces`.
    pub fn start(&self, net_namespaces: &Arc<NetNamespaces>) -> Result<(), SetupFailure> {
        if self.thread.get().is_some() {
            return Ok(());
        }
        let (queue, arriving) = sync_channel(BACKLOG_MAX);
        let net_namespaces = Some(Arc::clone(net_namespaces));
        let undying = self.undying.clone();
        let sender =
            Sender { queue: Some(queue), backlog: Arc::default(), net_namespaces, undying };
        let clears = Sender { queue: None, ..sender.clone() };
        let thread = Builder::new().name("disposal".to_owned());
        let thread = thread
            .spawn(move || clears.clear_away_behind(&arriving))
            .map_err(|error| SetupFailure::from_io("disposal thread", &error))?;
        // Were another sooner, ours would end at once: nobody would have anything for it.
        let _ = self.thread.set((sender, thread));
        Ok(())
    }

    /// How many dead boxes are still to be cleared away.
    pub fn backlog(&self) -> usize {
        self.thread.get().map_or(0, |(sender, _)| sender.backlog.load(Ordering::Relaxed))
    }

    /// The boxes that do not die.
    pub fn undying(&self) -> &Undying {
        &self.undying
    }

    /// For a box to leave its remnants with.
    pub fn sender(&self) -> Sender {
        let sender = self.thread.get().map(|(sender, _)| sender.clone());
        sender.unwrap_or_else(|| Sender { undying: self.undying.clone(), ..Sender::default() })
    }

    /// Waits until nothing is left to clear away, or the deadline comes: boxes that are not dead by
    /// then keep what they hold.
    pub fn close(mut self, deadline: Deadline) {
        if !self.undying.wait_none(deadline) {
            log::error!("{} boxes are not dead", self.undying.count());
        }
        let Some((sender, thread)) = self.thread.take() else { return };
        let backlog = Arc::clone(&sender.backlog);
        drop(sender);
        while !thread.is_finished() {
            if deadline.passed() {
                let boxes = backlog.load(Ordering::Relaxed);
                return log::error!("{boxes} dead boxes are not cleared away");
            }
            sleep(ANSWER_WAIT);
        }
        if thread.join().is_err() {
            log::error!("the thread that clears boxes away panicked");
        }
    }
}

impl Sender {
    /// The boxes that do not die, of whoever has this.
    pub fn undying(&self) -> &Undying {
        &self.undying
    }

    /// Has `remnants` cleared away: behind the caller's back as long as there are not too many.
    pub fn leave(&self, remnants: Remnants) {
        let Some(queue) = &self.queue else { return self.clear_away(remnants) };
        self.backlog.fetch_add(1, Ordering::Relaxed);
        let (TrySendError::Full(remnants) | TrySendError::Disconnected(remnants)) =
            match queue.try_send(remnants) {
                Ok(()) => return,
                Err(refused) => refused,
            };
        self.backlog.fetch_sub(1, Ordering::Relaxed);
        self.clear_away(remnants);
    }

    fn clear_away(&self, remnants: Remnants) {
        let Remnants { fs, group, net, mounts } = remnants;
        collect_files_under_way();
        // Before the file system: that is mounted in there.
        drop(mounts);
        if let Some(fs) = fs {
            dispose(fs);
        }
        remove(group);
        if let (Some(namespaces), Some(net)) = (&self.net_namespaces, net) {
            namespaces.give_back(net);
        }
    }

    /// What the thread does, until nobody can leave anything any more.
    fn clear_away_behind(&self, arriving: &Receiver<Remnants>) {
        while let Ok(remnants) = arriving.recv() {
            // With a backlog there is no time to lose.
            if self.backlog.load(Ordering::Relaxed) == 1 {
                sleep(ANSWER_WAIT);
            }
            self.clear_away(remnants);
            self.backlog.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Removes the group of a dead box. One that will not go is for the sweep at
/// the end or at the next start.
fn remove(group: Option<BoxGroup>) {
    let removed = group.map(|mut group| group.remove(Deadline::after(GROUP_REMOVE_WAIT)));
    if let Some(Err(error)) = removed {
        log::error!("cgroup: {error}");
    }
}

/// Has the kernel look for files that only sockets of the dead hold, under way from one to the other:
/// it looks when somebody closes a socket, and on a quiet host that may be nobody for long.
fn collect_files_under_way() {
    drop(UnixStream::pair());
}

/// Lets go of `fs`, on a thread of its own if that takes long.
fn dispose(fs: SandboxFs) {
    let is_small = fs
        .used()
        .is_ok_and(|(bytes, inodes)| bytes <= SMALL_BYTES_MAX && inodes <= SMALL_INODES_MAX);
    let Some(going) = (!is_small).then(|| GOING.try_enter()).flatten() else { return };
    let let_go = move || {
        drop(fs);
        drop(going);
    };
    if let Err(error) = Builder::new().name("disposal".to_owned()).spawn(let_go) {
        // What the thread would have had is gone with it, here and now.
        log::warn!("disposal: {error}");
    }
}
