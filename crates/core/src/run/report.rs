//! What is known of a run once it is over.

use std::time::Duration;

use serde::Serialize;

use super::outcome::Outcome;
use super::output::CapturedStream;

/// What a run used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// From the program's exec to its end, milliseconds.
    pub wall_ms: u64,
    /// CPU time of all its processes, milliseconds.
    pub cpu_ms: u64,
    /// The most memory the box held at once, bytes.
    pub memory_peak_bytes: u64,
    /// Where that figure comes from: `cgroup2`, `cgroup1` or `rusage` (the
    /// largest single process).
    pub memory_peak_source: &'static str,
    /// The most processes and threads alive at once, where a controller tells.
    pub processes_peak: Option<u64>,
    /// Processes that the kernel killed for want of memory, where a controller counts them: a run
    /// may survive those of its children.
    pub oom_kills: Option<u64>,
    /// Bytes written to stdout, kept or not.
    pub stdout_bytes: u64,
    /// Bytes written to stderr, kept or not.
    pub stderr_bytes: u64,
}

/// Where the time of a run went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    /// Making the box and its files, until the program's exec.
    pub prepare: Duration,
    /// From the exec to the program's end.
    pub run: Duration,
    /// From the program's end until nothing of the box was left.
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
    /// What it used.
    pub usage: Usage,
    /// The controls it ran under.
    pub enforced: Enforced,
    /// Controls the host lacks, by name, with the reason.
    pub not_enforced: Vec<String>,
    /// Where the time went.
    pub timings: Timings,
    /// Whether it ran in a box made ahead.
    pub standby: bool,
}

/// The controls in force for a run, each with the mechanism that held it;
/// `None` where the host could not and `not_enforced` says so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Enforced {
    /// The namespaces made for the box, the user namespace behind its uid apart.
    pub namespaces: Vec<&'static str>,
    /// The seccomp profile's name.
    pub seccomp: Option<String>,
    /// `cgroup2` or `cgroup1`.
    pub memory: Option<&'static str>,
    /// `cgroup2+rlimit`, `cgroup1+rlimit` or `rlimit`.
    pub processes: Option<&'static str>,
    /// `tmpfs`: one size- and inode-capped file system.
    pub disk: Option<&'static str>,
    /// `cgroup2` or `cgroup1`: the figure of `cpus` where one is asked for, CPU accounting otherwise.
    pub cpu: Option<&'static str>,
}
