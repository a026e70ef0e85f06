//! Which controls a run really had.

use serde::Serialize;

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
