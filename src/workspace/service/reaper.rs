//! Ends workspaces that are over.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::bell::ReaperBell;
use super::counts::EngineCounts;
use super::live::{LiveWorkspace, WorkspaceEnd};
use super::registry::Registry;
use super::span::Span;
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
    /// Ends workspaces that are over, on a thread, until the bell is closed.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(&self) -> io::Result<JoinHandle<()>> {
        let reaping = self.clone();
        let thread = thread::Builder::new().name("reaper".to_owned());
        thread.spawn(move || {
            let mut next = None;
            while reaping.bell.wait_until(next) {
                next = reaping.reap();
            }
        })
    }

    /// Ends those that are over now. Returns when the next one is.
    pub fn reap(&self) -> Option<Instant> {
        let (due, next) = self.registry.end_due(Instant::now());
        for (workspace, why) in due {
            self.finish(&workspace, why);
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
