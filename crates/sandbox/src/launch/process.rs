//! The init of a sandbox as a process of this host.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::supervise::kill_count::KillCount;
use crate::sys;
use crate::sys::Rusage;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};

/// The number of the program's process in its sandbox: the init starts no other.
const PROGRAM_PID: &str = "2";

/// The init of a sandbox, PID 1 inside.
#[derive(Debug)]
pub struct InitProcess {
    /// Its pid on this host. No other process gets the number until the supervisor reaps it. If a
    /// host program reaps all its children, only the usage is lost.
    pub pid: i32,
    /// Its process descriptor.
    pub pidfd: OwnedFd,
    /// Counts it if it does not die in time.
    pub kill_count: KillCount,
    /// When to stop waiting for its death; set by the first wait.
    pub death_due: OnceLock<Deadline>,
    reaped: AtomicBool,
}

impl InitProcess {
    /// From the pid and the descriptor that clone returned.
    pub fn new(pid: i32, pidfd: OwnedFd) -> Self {
        let (kill_count, death_due) = (KillCount::default(), OnceLock::new());
        Self { pid, pidfd, kill_count, death_due, reaped: AtomicBool::new(false) }
    }

    /// A child process that sleeps until it is killed.
    #[cfg(test)]
    #[allow(clippy::zombie_processes, reason = "the owner reaps it")]
    pub fn sleeping() -> Self {
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        Self::new(pid, sys::pidfd_of(pid).unwrap())
    }

    /// Opens its first child: the program's process, until that is reaped. Children that the init
    /// inherits come later in the list.
    pub fn first_child(&self) -> io::Result<OwnedFd> {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let listed = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid))?;
        let first = listed.split(' ').next().and_then(|id| id.parse::<i32>().ok());
        let first = first.ok_or_else(gone)?;
        let child = sys::pidfd_of(first)?;
        let status = fs::read_to_string(format!("/proc/{first}/status"))?;
        let ids = |key| status.lines().find_map(|line| line.strip_prefix(key));
        // It was alive after it was looked up, so the number was its own all the time.
        let is_child = ids("PPid:").is_some_and(|id| id.trim().parse() == Ok(self.pid));
        // Not one that the init has inherited: the program may have been reaped.
        let inside = ids("NSpid:").and_then(|ids| ids.split_whitespace().next_back());
        let is_own = inside == Some(PROGRAM_PID) || weakened::lacks(Wall::Pid);
        let mut alive = [PollFd::new(child.as_fd(), PollFlags::POLLIN)];
        let is_alive = poll(&mut alive, PollTimeout::ZERO)? == 0;
        if is_child && is_own && is_alive { Ok(child) } else { Err(gone()) }
    }

    /// Reaps it once it is dead; returns what it used.
    pub fn reap(&self) -> io::Result<Rusage> {
        let usage = sys::reap(self.pid)?;
        self.reaped.store(true, Ordering::Relaxed);
        Ok(usage)
    }

    /// Whether it was reaped, so that its pid may belong to another process.
    pub fn is_reaped(&self) -> bool {
        self.reaped.load(Ordering::Relaxed)
    }
}
