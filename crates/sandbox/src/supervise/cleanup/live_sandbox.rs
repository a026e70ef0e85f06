//! A sandbox's process, and everything that stays taken until that process is dead.

use std::mem;
use std::sync::Arc;

use super::CleanupHandle;
use super::queue::SandboxResources;
use super::undying::KilledSandbox;
use crate::launch::process::InitProcess;
use crate::supervise::kill;
use cofferdam_core::sync::retained::Retained;

/// Owns everything of a sandbox. On drop it kills the sandbox and waits for its death, once and for
/// a bounded time. A dead sandbox is cleaned up; a sandbox that is not dead by then goes to
/// [`UndyingSandboxes`](super::undying::UndyingSandboxes) and keeps its resources.
#[derive(Debug)]
pub struct LiveSandbox {
    /// The init.
    pub process: Arc<InitProcess>,
    /// File system, cgroup and namespaces.
    pub resources: SandboxResources,
    /// What the caller has it retain until it is dead: a host id, a permit.
    pub retained: Retained,
    /// Where it goes when it ends.
    pub cleanup: CleanupHandle,
}

impl Drop for LiveSandbox {
    fn drop(&mut self) {
        let CleanupHandle { queue, undying } = mem::take(&mut self.cleanup);
        let killed = KilledSandbox {
            process: Arc::clone(&self.process),
            resources: mem::take(&mut self.resources),
            retained: mem::take(&mut self.retained),
            queue,
        };
        let process = &killed.process;
        if !process.is_reaped() {
            kill::end(process, killed.resources.group.as_ref());
            if !kill::wait_dead(process, kill::KILL_WAIT) {
                return undying.keep(killed);
            }
        }
        killed.clean_up();
    }
}
