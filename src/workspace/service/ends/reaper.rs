//! Ends workspaces that are over.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::bell::ReaperBell;
use super::keeper::Keeper;
use crate::workspace::service::counts::EngineCounts;
use crate::workspace::service::live::{LiveWorkspace, WorkspaceEnd};
use crate::workspace::service::registry::Registry;
use crate::workspace::service::span::Span;
use cofferdam_core::values::deadline::Deadline;

/// How long killed programs may take to die.
const PROGRAMS_KILLED_WITHIN: Duration = Duration::from_secs(10);

/// What the end of a workspace needs.
#[derive(Debug, Clone, Default)]
pub struct Reaping {
    /// The live workspaces.
    pub registry: Arc<Registry>,
    /// Wakes the reaper.
    pub bell: Arc<ReaperBell>,
    /// Counts the ends.
    pub counts: Arc<EngineCounts>,
}

impl Reaping {
    /// Ends workspaces that are over, on a thread, until the bell is closed; those of `keeper` are parked.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(&self, keeper: Arc<Keeper>) -> io::Result<JoinHandle<()>> {
        let reaping = self.clone();
        let thread = thread::Builder::new().name("reaper".to_owned());
        thread.spawn(move || {
            let mut next = None;
            while reaping.bell.wait_until(next) {
                let soonest = [reaping.reap(&keeper), keeper.expire()];
                next = soonest.into_iter().flatten().min();
            }
        })
    }

    /// Ends those that are over now. Returns when the next one is.
    fn reap(&self, keeper: &Keeper) -> Option<Instant> {
        let (due, next) = self.registry.end_due(Instant::now());
        for (workspace, why) in due {
            if workspace.settings.persist {
                // To write it out takes too long for this thread.
                keeper.saves.offer_park(workspace.number);
            } else {
                self.finish(&workspace, why);
            }
        }
        next
    }

    /// Removes a workspace whose end has begun, when its programs are dead.
    pub fn finish(&self, workspace: &LiveWorkspace, why: WorkspaceEnd) {
        let span = Span::begin("workspace.cleanup");
        if !workspace.wait_programs(Deadline::after(PROGRAMS_KILLED_WITHIN)) {
            log::error!(workspace_id = workspace.id; "a killed program of a workspace has not ended");
        }
        if !workspace.discard_prepared() {
            log::error!(workspace_id = workspace.id; "a prepared sandbox has not ended");
        }
        self.registry.remove(workspace);
        self.counts.count_end(why);
        span.end_cleanup(&workspace.id, why);
    }
}
