//! A sandbox's process, and everything that stays taken until that is dead.

use std::mem;
use std::sync::Arc;

use super::kill;
use crate::cgroup::BoxGroup;
use crate::launch::process::InitProcess;
use crate::supervise::cleanup::{Remnants, Sender};
use cofferdam_core::sync::retained::Retained;

/// What a sandbox holds. Dropped, it is killed and waited for, once in all and for a bounded time.
/// If it is dead by then, everything is given back; otherwise everything goes to the keeper of
/// undying sandboxes (`undying.rs`), and stays taken.
#[derive(Debug)]
pub struct Holdings {
    /// Its init.
    pub process: Arc<InitProcess>,
    /// Its file system, groups and namespaces.
    pub remnants: Remnants,
    /// What its user has it retain: a host id, a permit.
    pub retained: Retained,
    /// Clears its remnants away.
    pub disposal: Sender,
}

/// The same, of a sandbox that was killed.
#[derive(Debug)]
pub struct Killed {
    /// Its init.
    pub process: Arc<InitProcess>,
    /// Its file system, groups and namespaces.
    pub remnants: Remnants,
    /// What its user has it retain.
    pub retained: Retained,
    /// Clears its remnants away.
    pub disposal: Sender,
}

impl Killed {
    /// Gives back everything. To be called when the init is dead, and never before.
    pub fn give_back(self) {
        let Self { process, mut remnants, retained, disposal } = self;
        if !process.is_reaped()
            && let Err(error) = process.reap()
        {
            // Its usage is lost, no more: it is dead.
            log::error!("reap box {}: {error}", process.pid);
        }
        remnants.group.iter_mut().for_each(BoxGroup::close_usage_files);
        disposal.leave(remnants);
        drop(retained);
    }
}

impl Drop for Holdings {
    fn drop(&mut self) {
        let killed = Killed {
            process: Arc::clone(&self.process),
            remnants: mem::take(&mut self.remnants),
            retained: mem::take(&mut self.retained),
            disposal: mem::take(&mut self.disposal),
        };
        let process = &killed.process;
        if !process.is_reaped() {
            kill::end(process, killed.remnants.group.as_ref());
            if !kill::wait_dead(process, kill::KILL_WAIT) {
                let keeper = killed.disposal.undying().clone();
                return keeper.keep(killed);
            }
        }
        killed.give_back();
    }
}
