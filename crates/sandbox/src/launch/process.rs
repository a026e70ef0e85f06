//! The init of a sandbox as a process of this host.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::sys;
use crate::sys::Rusage;
use cofferdam_core::sync::counter::Counter;
use cofferdam_core::values::deadline::Deadline;

/// Boxes of one sandbox that did not die in the time they had.
#[derive(Debug, Clone, Default)]
pub struct KillFailures(Arc<Counter>);

impl KillFailures {
    /// How many there were so far.
    pub fn count(&self) -> u64 {
        self.0.get()
    }
}

/// Where a box is counted that would not die, once however often it is waited for.
#[derive(Debug, Default)]
pub struct KillCount {
    failures: OnceLock<KillFailures>,
    counted: AtomicBool,
}

impl KillCount {
    /// Has it counted among `failures`, and nowhere else from now on.
    pub fn count_among(&self, failures: &KillFailures) {
        self.failures.get_or_init(|| failures.clone());
    }

    /// Counts it, unless it is counted already.
    pub fn failed(&self) {
        if !self.counted.swap(true, Ordering::Relaxed)
            && let Some(failures) = self.failures.get()
        {
            failures.0.increment();
        }
    }
}

/// A process just cloned.
#[derive(Debug)]
pub struct InitProcess {
    /// Its pid here. Stays its own until it is reaped, which is ours to do; a
    /// host program that reaps any child it has costs us the usage, no more.
    pub pid: i32,
    /// A descriptor for it.
    pub pidfd: OwnedFd,
    /// Where it is counted if it will not die.
    pub kill_count: KillCount,
    /// Until when its death is waited for; set by the first wait.
    pub death_due: OnceLock<Deadline>,
    reaped: AtomicBool,
}

impl InitProcess {
    /// A process just cloned, and a descriptor for it.
    pub fn new(pid: i32, pidfd: OwnedFd) -> Self {
        let (kill_count, death_due) = (KillCount::default(), OnceLock::new());
        Self { pid, pidfd, kill_count, death_due, reaped: AtomicBool::new(false) }
    }

    /// A child of ours that was made in another way, and sleeps until it is killed.
    #[cfg(test)]
    #[allow(clippy::zombie_processes, reason = "whoever has this reaps it")]
    pub fn sleeping() -> Self {
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        Self::new(pid, sys::pidfd_of(pid).unwrap())
    }

    /// Takes leave of it once it is dead; says what it used.
    pub fn reap(&self) -> io::Result<Rusage> {
        let usage = sys::reap(self.pid)?;
        self.reaped.store(true, Ordering::Relaxed);
        Ok(usage)
    }

    /// Whether it is gone, its pid no longer its own.
    pub fn is_reaped(&self) -> bool {
        self.reaped.load(Ordering::Relaxed)
    }
}
