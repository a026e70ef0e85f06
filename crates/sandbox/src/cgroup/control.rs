//! The controls that a sandbox gets from cgroups, and which cgroup version provides each on this
//! host.

use std::fmt;

/// The interface that provides a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One hierarchy per controller, or per group of controllers.
    V1,
    /// The unified hierarchy.
    V2,
}

impl CgroupVersion {
    /// The word in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::V1 => "cgroup1",
            Self::V2 => "cgroup2",
        }
    }
}

impl fmt::Display for CgroupVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())
    }
}

/// One control that a sandbox gets from a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupControl {
    Memory,
    Processes,
    Cpu,
    CpuTime,
    Kill,
}

impl CgroupControl {
    pub(super) const ALL: [Self; 5] =
        [Self::Memory, Self::Processes, Self::Cpu, Self::CpuTime, Self::Kill];

    /// The version 1 controller that provides it.
    pub(super) fn v1_controller(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Cpu => "cpu",
            Self::CpuTime => "cpuacct",
            Self::Kill => "freezer",
        }
    }

    /// The version 2 controller that provides it; `None` where every group does.
    pub(super) fn v2_controller(self) -> Option<&'static str> {
        match self {
            Self::Memory | Self::Processes | Self::Cpu => Some(self.v1_controller()),
            Self::CpuTime | Self::Kill => None,
        }
    }

    /// Whether it is about CPU time only.
    pub(super) fn is_of_cpus(self) -> bool {
        matches!(self, Self::Cpu | Self::CpuTime)
    }

    /// The step in the error if a sandbox cannot get it.
    pub(super) fn step(self) -> &'static str {
        match self {
            Self::Memory => "cgroup memory",
            Self::Processes => "cgroup pids",
            Self::Cpu => "cgroup cpu",
            Self::CpuTime => "cgroup cpu time",
            Self::Kill => "cgroup kill",
        }
    }
}

/// Which version provides a control, and what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlSupport {
    /// The version that provides it; `None` if it is missing.
    pub by: Option<CgroupVersion>,
    /// Why it is missing or weaker.
    pub reason: Option<String>,
}

impl ControlSupport {
    pub(super) fn given(by: CgroupVersion) -> Self {
        Self { by: Some(by), reason: None }
    }

    pub(super) fn missing(reason: String) -> Self {
        Self { by: None, reason: Some(reason) }
    }
}

/// The controls that the cgroups of this host provide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupSupport {
    /// Limits memory.
    pub memory: ControlSupport,
    /// Limits the number of processes and threads.
    pub processes: ControlSupport,
    /// Limits the share of the CPUs.
    pub cpu: ControlSupport,
    /// Reports the CPU time of all processes together.
    pub cpu_time: ControlSupport,
    /// Kills all processes at once.
    pub kill: ControlSupport,
}

impl CgroupSupport {
    /// Whether a sandbox that lasts can have the groups that it needs, else why not.
    ///
    /// # Errors
    /// What is missing.
    pub fn check_shared(&self) -> Result<(), String> {
        let wanted =
            [("kill", &self.kill), ("memory", &self.memory), ("processes", &self.processes)];
        match wanted.into_iter().find(|(_, control)| control.by.is_none()) {
            None => Ok(()),
            Some((name, control)) => {
                let reason = control.reason.as_deref().unwrap_or("no cgroup controller");
                Err(format!("a shared sandbox needs cgroups: {name}: {reason}"))
            }
        }
    }

    pub(super) fn of_mut(&mut self, control: CgroupControl) -> &mut ControlSupport {
        match control {
            CgroupControl::Memory => &mut self.memory,
            CgroupControl::Processes => &mut self.processes,
            CgroupControl::Cpu => &mut self.cpu,
            CgroupControl::CpuTime => &mut self.cpu_time,
            CgroupControl::Kill => &mut self.kill,
        }
    }
}
