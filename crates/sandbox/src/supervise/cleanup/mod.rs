//! Cleanup of dead sandboxes: their file systems, cgroups and namespaces.
//!
//! `queue` frees what a dead sandbox held, on a thread behind the response. `undying` keeps
//! sandboxes that were killed and have not died. `live_sandbox` owns everything of a sandbox that
//! is alive.

pub(crate) mod live_sandbox;
pub(crate) mod queue;
pub(crate) mod undying;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use crate::pool::net_namespaces::NetNamespaces;
use crate::supervise::cleanup::queue::CleanupQueue;
use crate::supervise::cleanup::undying::UndyingSandboxes;
use cofferdam_core::SetupFailure;
use cofferdam_core::values::deadline::Deadline;

/// How often [`Cleanup::close`] checks whether the thread has ended.
const CLOSE_INTERVAL: Duration = Duration::from_millis(1);

/// Cleans up the dead sandboxes of one [`SandboxHost`](crate::engine::SandboxHost): on a thread once it is started,
/// until then on the thread that drops the sandbox.
#[derive(Debug, Default)]
pub struct Cleanup {
    thread: OnceLock<(CleanupQueue, JoinHandle<()>)>,
    undying: UndyingSandboxes,
}

/// Where a live sandbox goes when it ends.
#[derive(Debug, Clone, Default)]
pub struct CleanupHandle {
    /// For a dead one.
    queue: CleanupQueue,
    /// For one that was killed and does not die.
    undying: UndyingSandboxes,
}

impl Cleanup {
    /// Starts the thread, unless it runs. It returns network namespaces to `net_namespaces`.
    pub fn start(&self, net_namespaces: &Arc<NetNamespaces>) -> Result<(), SetupFailure> {
        if self.thread.get().is_some() {
            return Ok(());
        }
        let started = queue::start(net_namespaces)
            .map_err(|error| SetupFailure::from_io("cleanup thread", &error))?;
        // If another call was faster, this thread ends at once: its queue is dropped.
        let _ = self.thread.set(started);
        Ok(())
    }

    /// The number of dead sandboxes not cleaned up yet.
    pub fn backlog(&self) -> usize {
        self.thread.get().map_or(0, |(queue, _)| queue.backlog().load(Ordering::Relaxed))
    }

    /// The killed sandboxes that have not died.
    pub fn undying(&self) -> &UndyingSandboxes {
        &self.undying
    }

    /// A handle for a new sandbox.
    pub fn handle(&self) -> CleanupHandle {
        let queue = self.thread.get().map(|(queue, _)| queue.clone()).unwrap_or_default();
        CleanupHandle { queue, undying: self.undying.clone() }
    }

    /// Waits until everything is cleaned up, at most until the deadline. Sandboxes that are not
    /// dead by then keep their resources.
    pub fn close(mut self, deadline: Deadline) {
        if !self.undying.wait_none(deadline) {
            log::error!("{} sandboxes are not dead", self.undying.count());
        }
        let Some((queue, thread)) = self.thread.take() else { return };
        let backlog: Arc<AtomicUsize> = Arc::clone(queue.backlog());
        drop(queue);
        while !thread.is_finished() {
            if deadline.passed() {
                let count = backlog.load(Ordering::Relaxed);
                return log::error!("{count} dead sandboxes are not cleaned up");
            }
            sleep(CLOSE_INTERVAL);
        }
        if thread.join().is_err() {
            log::error!("the cleanup thread panicked");
        }
    }
}
