//! The report of a finished run.

use std::time::Duration;

use serde::Serialize;

use super::outcome::Outcome;
use super::output::CapturedStream;

/// The resources that a run used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Time from the program's exec to its end, milliseconds.
    pub wall_ms: u64,
    /// CPU time of all its processes, milliseconds.
    pub cpu_ms: u64,
    /// Peak memory of the sandbox, bytes.
    pub memory_peak_bytes: u64,
    /// The source of `memory_peak_bytes`: `cgroup2`, `cgroup1` or `rusage` (the largest single
    /// process).
    pub memory_peak_source: &'static str,
    /// Peak number of processes and threads; `None` without a pids controller.
    pub processes_peak: Option<u64>,
    /// Processes that the OOM killer killed; `None` if no controller counts them. A run can survive
    /// an OOM kill of one of its children.
    pub oom_kills: Option<u64>,
    /// Bytes written to stdout, kept or not.
    pub stdout_bytes: u64,
    /// Bytes written to stderr, kept or not.
    pub stderr_bytes: u64,
}

/// The time that each phase of a run took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    /// Creating the sandbox and its files, until the program's exec.
    pub prepare: Duration,
    /// From the exec to the program's end.
    pub run: Duration,
    /// From the program's end until the sandbox was removed.
    pub cleanup: Duration,
}

/// A finished run.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// How it ended.
    pub outcome: Outcome,
    /// What it wrote to stdout.
    pub stdout: CapturedStream,
    /// What it wrote to stderr.
    pub stderr: CapturedStream,
    /// The resources it used.
    pub usage: Usage,
    /// The controls that were enforced.
    pub enforced: Enforced,
    /// The controls that the host lacks, each as `name: reason`.
    pub not_enforced: Vec<String>,
    /// The time that each phase took.
    pub timings: Timings,
    /// Whether it ran in a prepared sandbox from the standby pool.
    pub standby: bool,
}

/// The controls that were enforced on a run, each with its mechanism.
///
/// A control is `None` if the host could not enforce it; `not_enforced` then has the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Enforced {
    /// The namespaces created for the sandbox, without the user namespace that maps its uid.
    pub namespaces: Vec<&'static str>,
    /// The seccomp profile's name.
    pub seccomp: Option<String>,
    /// `cgroup2` or `cgroup1`.
    pub memory: Option<&'static str>,
    /// `cgroup2+rlimit`, `cgroup1+rlimit` or `rlimit`.
    pub processes: Option<&'static str>,
    /// `tmpfs`: one size- and inode-capped file system.
    pub disk: Option<&'static str>,
    /// `cgroup2` or `cgroup1`: the CPU quota if one is set, else CPU accounting.
    pub cpu: Option<&'static str>,
}

impl Enforced {
    /// Whether the memory and the CPU time of each sandbox are counted. Programs are executed ahead of their runs
    /// only then.
    pub fn counts_usage(&self) -> bool {
        self.memory.is_some() && self.cpu.is_some()
    }
}
