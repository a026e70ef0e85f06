//! The cgroups of one sandbox: sets limits, reads usage, kills all processes, removes the groups.

mod nested;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::cgroup::control::{CgroupControl, CgroupVersion};
use crate::cgroup::directory::{CgroupDirectory, CgroupError, RETRY_INTERVAL};
use crate::cgroup::hierarchy::Hierarchy;
use crate::cgroup::limit_files::{
    CpuClass, INIT_PROCESSES, LimitFile, all_cpus, cpu_weight, limit_files,
};
use crate::cgroup::reclaim;
use crate::cgroup::termination::{self, kill_all};
use crate::cgroup::usage::{self, GroupUsage, UsageFiles};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{Limits, SetupFailure};

/// The directory of one sandbox in each hierarchy it needs. Drop removes the directories that are
/// empty; [`SandboxGroup::remove`] reports which stay.
#[derive(Debug, Default)]
pub struct SandboxGroup {
    groups: Vec<Group>,
    task_files: Vec<OwnedFd>,
    program_task_files: Vec<OwnedFd>,
    usage_files: UsageFiles,
    /// Whether it has a CPU quota besides its weight.
    has_quota: bool,
    /// Whether the init is not in it.
    is_nested: bool,
}

#[derive(Debug)]
struct Group {
    top: Arc<CgroupDirectory>,
    directory: Arc<CgroupDirectory>,
    controls: Vec<CgroupControl>,
}

impl SandboxGroup {
    /// Creates the directories and sets the limits. A failure leaves no directory.
    pub(super) fn create(
        hierarchies: &[Hierarchy],
        name: &str,
        limits: Option<&Limits>,
    ) -> Result<Self, SetupFailure> {
        Self::create_with(hierarchies, limits, |hierarchy| {
            let top = hierarchy.top();
            Ok((Arc::clone(top), Arc::new(top.make_child(name)?)))
        })
    }

    /// As [`SandboxGroup::create`] for the only sandbox of these hierarchies: where a top directory can
    /// hold processes, it is the group. It is removed with the sandbox.
    pub(super) fn create_only(
        hierarchies: &[Hierarchy],
        name: &str,
        limits: &Limits,
    ) -> Result<Self, SetupFailure> {
        Self::create_with(hierarchies, Some(limits), |hierarchy| {
            if let Some((own, top)) = hierarchy.top_as_group() {
                return Ok((Arc::clone(own), Arc::clone(top)));
            }
            let top = hierarchy.top();
            Ok((Arc::clone(top), Arc::new(top.make_child(name)?)))
        })
    }

    /// `place` gives the parent and the directory of the group in each hierarchy.
    fn create_with(
        hierarchies: &[Hierarchy],
        limits: Option<&Limits>,
        place: impl Fn(&Hierarchy) -> Result<(Arc<CgroupDirectory>, Arc<CgroupDirectory>), CgroupError>,
    ) -> Result<Self, SetupFailure> {
        let mut made = Self::default();
        made.has_quota = limits.is_some_and(|limits| limits.cpus_milli_max.is_some());
        for hierarchy in hierarchies {
            let controls = hierarchy.controls().to_vec();
            if let Some(first) = controls.first() {
                let step = first.step();
                let placed = place(hierarchy).and_then(|place| made.add(place, controls));
                placed.map_err(|e| failure(step, &e))?;
                match limits {
                    Some(limits) => made.limit_last(limits)?,
                    None => made.add_up_last(),
                }
            }
        }
        Ok(made)
    }

    fn add(
        &mut self,
        (top, directory): (Arc<CgroupDirectory>, Arc<CgroupDirectory>),
        controls: Vec<CgroupControl>,
    ) -> Result<(), CgroupError> {
        let group = Group { top, directory, controls };
        let opened = match group.directory.version() {
            CgroupVersion::V1 => Some(group.directory.open_file("tasks", OFlag::O_WRONLY)),
            CgroupVersion::V2 => None,
        };
        for control in &group.controls {
            self.usage_files.open(*control, &group.directory);
        }
        let of_cpus_alone = group.controls.iter().all(|control| control.is_of_cpus());
        // Stored before the error is returned, so that drop removes it.
        self.groups.push(group);
        let files = if of_cpus_alone { &mut self.program_task_files } else { &mut self.task_files };
        files.extend(opened.transpose()?);
        Ok(())
    }

    /// Makes the limit of memory bound the groups below too. It does so anyway on version 2 and since
    /// Linux 5.11, which may lack the file.
    fn add_up_last(&self) {
        let Some(group) = self.groups.last() else { return };
        if group.controls.contains(&CgroupControl::Memory) {
            let _ = group.directory.write("memory.use_hierarchy", "1");
        }
    }

    fn limit_last(&self, limits: &Limits) -> Result<(), SetupFailure> {
        self.groups.last().map_or(Ok(()), |group| group.limit(limits))
    }

    /// The version 2 directory for `CLONE_INTO_CGROUP` of `clone3`; `None` on a host with version 1
    /// alone. Where `clone3` is refused, the child writes `0` into `cgroup.procs` there and pays
    /// for the kernel-wide lock.
    pub fn clone_into(&self) -> Option<BorrowedFd<'_>> {
        let group = self.groups.iter().find(|g| g.directory.version() == CgroupVersion::V2)?;
        Some(group.directory.as_fd())
    }

    /// The version 1 `tasks` files, open for writing. The child writes `0` into each while it has
    /// one thread.
    pub fn task_files(&self) -> &[OwnedFd] {
        &self.task_files
    }

    /// The `tasks` files that the program's process writes `0` into. The init stays outside of the
    /// CPU group: what it does to create and end a sandbox does not wait for the CPU quota.
    pub fn program_task_files(&self) -> &[OwnedFd] {
        &self.program_task_files
    }

    /// Closes the `tasks` files. The init has its own copies, and each open descriptor of the
    /// service makes every later clone slower.
    pub fn close_task_files(&mut self) {
        self.task_files.clear();
        self.program_task_files.clear();
    }

    /// Closes the usage files. [`SandboxGroup::usage`] then has no peaks and no CPU time.
    pub fn close_usage_files(&mut self) {
        self.usage_files = UsageFiles::default();
    }

    /// The usage so far. Whether the limit of processes was met is read only with `met_limits`. OOM
    /// kills are always counted: a program may survive the kill of a child.
    pub fn usage(&self, met_limits: bool) -> GroupUsage {
        let files = &self.usage_files;
        let (oom_kills, memory_refused) = files.memory_events();
        let limited = self.directory_for(CgroupControl::Processes).filter(|_| met_limits);
        let of_init = if self.is_nested { 0 } else { INIT_PROCESSES };
        GroupUsage {
            cpu: files.cpu_time(),
            memory_peak: files.memory_peak(),
            processes_peak: files.processes_peak().map(|peak| peak.saturating_sub(of_init)),
            oom_kills,
            memory_refused,
            processes_refused: limited.map_or(0, usage::processes_refused),
        }
    }

    /// CPU time of all processes so far: one small read.
    pub fn cpu_time(&self) -> Option<Duration> {
        self.usage_files.cpu_time()
    }

    /// The memory of the sandbox now, in bytes, if a controller counts it.
    pub fn memory_now(&self) -> Option<u64> {
        self.directory_for(CgroupControl::Memory).and_then(usage::memory_now)
    }

    /// Counts the peak of memory from now on, if the kernel can.
    pub fn restart_memory_peak(&mut self) {
        let memory =
            self.group_for(CgroupControl::Memory).map(|group| Arc::clone(&group.directory));
        if let Some(directory) = memory {
            self.usage_files.restart_memory_peak(&directory);
        }
    }

    /// Sends SIGKILL to every process of the sandbox. False if the groups of this host cannot reach
    /// all of them at once. Lifts the CPU quota and, until [`SandboxGroup::set_cpu_class`] is
    /// called, gives the group a higher weight than any running sandbox.
    pub fn kill(&self) -> Result<bool, CgroupError> {
        self.lift_cpu_share();
        self.set_cpu_class(CpuClass::Dying);
        let Some(directory) = self.directory_for(CgroupControl::Kill) else { return Ok(false) };
        kill_all(directory)
    }

    /// Begins to stop every process. False if the groups of this host cannot.
    pub fn freeze(&self) -> Result<bool, CgroupError> {
        self.directory_for(CgroupControl::Kill).map_or(Ok(false), termination::freeze)
    }

    /// Whether every process is stopped.
    pub fn is_frozen(&self) -> bool {
        self.directory_for(CgroupControl::Kill).is_some_and(termination::is_frozen)
    }

    /// Lets the processes go on.
    pub fn thaw(&self) -> Result<(), CgroupError> {
        self.directory_for(CgroupControl::Kill).map_or(Ok(()), termination::thaw)
    }

    /// Sets the weight on busy CPUs: a run of milliseconds does not wait for a run of minutes.
    pub fn set_cpu_class(&self, class: CpuClass) {
        self.set_cpu(|version| cpu_weight(version, class));
    }

    /// Dying takes CPU time too: on a busy host, a hundred processes that share 2 % of a CPU would
    /// take many seconds.
    fn lift_cpu_share(&self) {
        if self.has_quota {
            self.set_cpu(all_cpus);
        }
    }

    fn set_cpu(&self, file: impl FnOnce(CgroupVersion) -> LimitFile) {
        let Some(directory) = self.directory_for(CgroupControl::Cpu) else { return };
        let LimitFile { file, text, .. } = file(directory.version());
        if let Err(error) = directory.write(file, &text) {
            // The sandbox runs, or dies, all the same; only its share differs.
            log::warn!("cgroup cpu: {error}");
        }
    }

    /// The processes of the sandbox, as numbered in this process's PID namespace.
    pub(crate) fn processes(&self) -> Result<Vec<i32>, CgroupError> {
        let directory = self.directory_for(CgroupControl::Kill);
        let directory = directory.or_else(|| Some(&*self.groups.first()?.directory));
        directory.map_or_else(|| Ok(Vec::new()), CgroupDirectory::processes)
    }

    /// Removes the directories. Waits until the deadline for the last process to be gone. An error
    /// names a directory that stays; the call may be repeated.
    pub fn remove(&mut self, deadline: Deadline) -> Result<(), CgroupError> {
        if let Some(group) = self.group_for(CgroupControl::Memory) {
            reclaim::drop_cached(&group.top, &group.directory);
        }
        loop {
            match self.try_remove() {
                Err(error) if error.errno == Errno::EBUSY && !deadline.passed() => {
                    self.wait_until_empty(deadline);
                }
                result => return result,
            }
        }
    }

    /// As [`SandboxGroup::remove`], for a group that others hold too.
    pub fn remove_empty(&self, deadline: Deadline) -> Result<(), CgroupError> {
        loop {
            let removed =
                self.groups.iter().map(|group| group.top.remove_child(group.directory.name()));
            // All are tried.
            let results: Vec<_> = removed.collect();
            match results.into_iter().collect() {
                Err(CgroupError { errno: Errno::EBUSY, .. }) if !deadline.passed() => {
                    self.wait_until_empty(deadline);
                }
                result => return result,
            }
        }
    }

    /// Removes every directory that can be removed. Returns the first error.
    fn try_remove(&mut self) -> Result<(), CgroupError> {
        let mut result = Ok(());
        self.groups.retain(|group| {
            let removed = group.top.remove_child(group.directory.name());
            let stays = removed.is_err();
            if result.is_ok() {
                result = removed;
            }
            stays
        });
        result
    }

    fn wait_until_empty(&self, deadline: Deadline) {
        if let Some(group) = self.groups.iter().find(|g| g.directory.version() == CgroupVersion::V2)
        {
            group.directory.wait_for_line("cgroup.events", "populated 0", deadline);
        }
        // Version 1 sends no events, and a group may stay busy for a moment after it became empty.
        sleep(RETRY_INTERVAL);
    }

    fn directory_for(&self, control: CgroupControl) -> Option<&CgroupDirectory> {
        self.group_for(control).map(|group| &*group.directory)
    }

    fn group_for(&self, control: CgroupControl) -> Option<&Group> {
        self.groups.iter().find(|group| group.controls.contains(&control))
    }
}

impl Group {
    fn limit(&self, limits: &Limits) -> Result<(), SetupFailure> {
        for control in &self.controls {
            for limit in limit_files(self.directory.version(), *control, limits) {
                match self.directory.write(limit.file, &limit.text) {
                    Err(error) if !(limit.optional && error.errno == Errno::ENOENT) => {
                        return Err(failure(control.step(), &error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl Drop for SandboxGroup {
    fn drop(&mut self) {
        // A last attempt; `remove` reports errors.
        let _ = self.try_remove();
    }
}

fn failure(step: &str, error: &CgroupError) -> SetupFailure {
    log::warn!("{step}: {error}");
    SetupFailure::from_errno(step, error.errno as i32)
}
