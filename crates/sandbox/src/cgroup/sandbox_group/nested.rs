//! Groups below that of a sandbox: one for its init, one for all programs, and in it one for each.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::unistd::{Gid, Uid, fchownat};

use super::{SandboxGroup, failure};
use crate::cgroup::control::{CgroupControl, CgroupVersion};
use crate::cgroup::directory::CgroupError;
use crate::cgroup::limit_files::INIT_PROCESSES;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{Limits, SetupFailure};

/// The file that lists and takes the processes of a group.
const PROCESSES: &str = "cgroup.procs";
/// The version 2 file that makes a group die as a whole when memory runs out.
const V2_OOM_GROUP: &str = "memory.oom.group";
/// The version 1 file that counts kills, and that reports when memory runs out.
const V1_OOM_FILE: &str = "memory.oom_control";

impl SandboxGroup {
    /// Creates the group `name` below this one in every hierarchy, without limits. The init is in none
    /// that gets some. A failure leaves no directory.
    ///
    /// # Errors
    /// The kernel refused a step.
    pub fn nested(&self, name: &str) -> Result<Self, SetupFailure> {
        let mut made = Self::default();
        made.is_nested = true;
        for group in &self.groups {
            let Some(first) = group.controls.first() else { continue };
            let step = first.step();
            let top = &group.directory;
            let below = top.make_child(name).map(|below| (Arc::clone(top), Arc::new(below)));
            let added = below.and_then(|place| made.add(place, group.controls.clone()));
            added.map_err(|error| failure(step, &error))?;
        }
        Ok(made)
    }

    /// Sets the limits of a group without an init.
    ///
    /// # Errors
    /// The kernel refused one.
    pub fn set_limits(&mut self, limits: &Limits) -> Result<(), SetupFailure> {
        self.has_quota = limits.cpus_milli_max.is_some();
        let limits = Limits {
            // One is added for an init.
            processes_max: limits.processes_max.saturating_sub(INIT_PROCESSES),
            ..limits.clone()
        };
        self.groups.iter().try_for_each(|group| group.limit(&limits))
    }

    /// Lets version 2 limit the groups below. No process may be in this one.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn delegate(&self) -> Result<(), SetupFailure> {
        for group in self.groups.iter().filter(|g| g.directory.version() == CgroupVersion::V2) {
            for control in &group.controls {
                let Some(name) = control.v2_controller() else { continue };
                let enabled = group.directory.write("cgroup.subtree_control", &format!("+{name}"));
                enabled.map_err(|error| failure(control.step(), &error))?;
            }
        }
        Ok(())
    }

    /// The files into which a process writes `0` to move into this group. Version 2's takes a
    /// kernel-wide lock.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn entries(&self) -> Result<Vec<OwnedFd>, SetupFailure> {
        let file = |version| match version {
            CgroupVersion::V1 => "tasks",
            CgroupVersion::V2 => PROCESSES,
        };
        let open = self.groups.iter().map(|group| {
            let opened =
                group.directory.open_file(file(group.directory.version()), OFlag::O_WRONLY);
            opened.map_err(|error| failure("cgroup", &error))
        });
        open.collect()
    }

    /// Lets processes of `tenant` be cloned from and into the groups of version 2 below this one, by a
    /// process in one of them. No sandbox shows the file.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn give_entry(&self, tenant: u32) -> Result<(), SetupFailure> {
        let (uid, gid) = (Uid::from_raw(tenant), Gid::from_raw(tenant));
        let unified = self.groups.iter().filter(|g| g.directory.version() == CgroupVersion::V2);
        for group in unified {
            let directory = group.directory.as_fd();
            let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
            fchownat(directory, PROCESSES, Some(uid), Some(gid), flags)
                .map_err(|errno| SetupFailure::from_errno("cgroup owner", errno as i32))?;
        }
        Ok(())
    }

    /// Makes the group die as a whole when the kernel kills one of its processes for memory. Returns
    /// false where the supervisor has to do it: on version 1, and before Linux 4.19.
    pub fn die_together(&self) -> bool {
        let Some(memory) = self.directory_for(CgroupControl::Memory) else { return true };
        memory.version() == CgroupVersion::V2 && memory.write(V2_OOM_GROUP, "1").is_ok()
    }

    /// Makes `event`, an eventfd, readable when memory runs out here or in a group above, on
    /// version 1.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn report_shortage(&self, event: BorrowedFd<'_>) -> Result<(), CgroupError> {
        let Some(memory) = self.directory_for(CgroupControl::Memory) else { return Ok(()) };
        if memory.version() == CgroupVersion::V2 {
            return Ok(());
        }
        let control = memory.open_file(V1_OOM_FILE, OFlag::O_RDONLY)?;
        let words = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
        memory.write("cgroup.event_control", &words)
    }

    /// How many of its processes the kernel killed for memory.
    pub fn oom_kills(&self) -> u64 {
        self.usage_files.memory_events().0.unwrap_or(0)
    }

    /// How many forks were refused at its limit of processes.
    pub fn processes_refused(&self) -> u64 {
        let limited = self.directory_for(CgroupControl::Processes);
        limited.map_or(0, crate::cgroup::usage::processes_refused)
    }

    /// Whether no process is in it, or it was removed.
    pub fn is_empty(&self) -> bool {
        match self.processes() {
            Ok(processes) => processes.is_empty(),
            Err(error) => [Errno::ENOENT, Errno::ENODEV].contains(&error.errno),
        }
    }

    /// Waits until no process is in it. False if the deadline passes first.
    pub fn wait_empty(&self, deadline: Deadline) -> bool {
        while !self.is_empty() {
            if deadline.passed() {
                return false;
            }
            self.wait_until_empty(deadline);
        }
        true
    }
}
