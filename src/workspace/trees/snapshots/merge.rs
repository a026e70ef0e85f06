//! Merges layers that no snapshot and no fork needs any more, while nothing uses their workspace.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::workspace::error::EngineCode;
use crate::workspace::service::live::LiveWorkspace;
use crate::workspace::service::merge_queue::{MergeOffer, MergeQueue};
use crate::workspace::service::registry::Registry;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::StopCheck;

/// Merges the layers of a workspace that nothing else needs, if nothing runs in it and no request uses its
/// files. Ends early when a request wants to, or at the deadline. The next end of a use tries again. Returns false if
/// somebody was in, who may only have looked: then no end of a use need follow.
pub fn merge_layers(live: &LiveWorkspace, deadline: Option<Deadline>) -> bool {
    let is_due = || live.programs().is_empty() && !live.is_over();
    let can_merge = || live.doors().try_share().is_some_and(|tree| tree.can_merge());
    if !is_due() || !can_merge() {
        return true;
    }
    let Some(mut tree) = live.doors().enter_alone(Deadline::after(Duration::ZERO)) else {
        return false;
    };
    if !is_due() {
        return true;
    }
    let stop =
        || live.doors().is_wanted() || live.is_over() || deadline.is_some_and(Deadline::passed);
    // The workspace is charged for what it takes back before these charges end.
    let charges = tree.frozen().charges();
    let merged = tree.merge(StopCheck(&stop));
    live.note_layers(&**tree);
    let charged = live.charge_layers(&**tree);
    drop(charges);
    for error in [merged.err(), charged.err()].into_iter().flatten() {
        // It was stopped, or a file is still open.
        if error.code != EngineCode::SnapshotUnavailable {
            log::error!(workspace_id = live.id; "layers of a workspace cannot be merged: {error}");
        }
    }
    true
}

/// A thread that merges layers as they are offered. Dropping it ends it.
#[derive(Debug)]
pub struct Merger {
    queue: Arc<MergeQueue>,
    thread: Option<JoinHandle<()>>,
}

impl Merger {
    /// Starts one for the workspaces of `registry`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(registry: Arc<Registry>) -> io::Result<Self> {
        let queue = Arc::new(MergeQueue::default());
        let offers = Arc::clone(&queue);
        let work = move || {
            while let Some(offer) = offers.wait() {
                for live in offered(&registry, &offer) {
                    if !merge_layers(&live, None) {
                        offers.offer(live.number);
                    }
                }
            }
        };
        let thread = Builder::new().name("merger".to_owned()).spawn(work)?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Where workspaces are offered.
    pub fn queue(&self) -> &Arc<MergeQueue> {
        &self.queue
    }
}

impl Drop for Merger {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the merger has been logged.
            let _ = thread.join();
        }
    }
}

fn offered(registry: &Registry, offer: &MergeOffer) -> Vec<Arc<LiveWorkspace>> {
    match offer {
        MergeOffer::Any => registry.all(),
        MergeOffer::Some(numbers) => {
            numbers.iter().filter_map(|number| registry.by_number(*number)).collect()
        }
    }
}
