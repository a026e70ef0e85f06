//! The controls a box can have from cgroups, and who gives each on this host.

use std::fmt;

/// The interface that gives a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// A hierarchy of its own for each controller.
    V1,
    /// The unified hierarchy.
    V2,
}

impl CgroupVersion {
    /// The word a report uses for it.
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

/// One thing a box wants of a cgroup.
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

    /// The version 1 controller that gives it.
    pub(super) fn v1_controller(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Cpu => "cpu",
            Self::CpuTime => "cpuacct",
            Self::Kill => "freezer",
        }
    }

    /// The version 2 controller that gives it; none where every group can.
    pub(super) fn v2_controller(self) -> Option<&'static str> {
        match self {
            Self::Memory | Self::Processes | Self::Cpu => Some(self.v1_controller()),
            Self::CpuTime | Self::Kill => None,
        }
    }

    /// Whether it concerns nothing but time on the CPUs.
    pub(super) fn is_of_cpus(self) -> bool {
        matches!(self, Self::Cpu | Self::CpuTime)
    }

    /// The step named when a box cannot be given it.
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

/// Who gives a control, and what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlSupport {
    /// The version that gives it; none where it is missing.
    pub by: Option<CgroupVersion>,
    /// Why it is missing, or in which way what is there falls short.
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

/// What this host's cgroups can do for a box.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupSupport {
    /// Bounding the box's memory.
    pub memory: ControlSupport,
    /// Bounding the number of its processes and threads.
    pub processes: ControlSupport,
    /// Bounding its share of the CPUs.
    pub cpu: ControlSupport,
    /// Telling the CPU time of all its processes together.
    pub cpu_time: ControlSupport,
    /// Killing all its processes at once.
    pub kill: ControlSupport,
}

impl CgroupSupport {
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
