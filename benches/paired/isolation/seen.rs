//! What the host's `/proc` says about a process in a sandbox.

/// A resource that a cgroup or a process limit can bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    Memory,
    Processes,
    CpuTime,
}

impl Resource {
    /// Its line in `/proc/PID/limits`.
    fn limit(self) -> &'static str {
        match self {
            Self::Memory => "Max address space",
            Self::Processes => "Max processes",
            Self::CpuTime => "Max cpu time",
        }
    }
}

/// The value of `name` in `/proc/PID/status`.
pub fn status_value<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
}

/// The number of capabilities in a set, as `/proc/PID/status` shows it.
pub fn capabilities(set: &str) -> Option<u32> {
    u64::from_str_radix(set, 16).ok().map(u64::count_ones)
}

/// The paths of the groups in `/proc/PID/cgroup` for a controller: on version 1, then on version 2.
pub fn groups<'a>(cgroup: &'a str, controller: &str) -> [Option<&'a str>; 2] {
    let of = |has: &dyn Fn(&str) -> bool| {
        let mut lines = cgroup.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        lines.find(|(names, _)| has(names)).map(|(_, path)| path)
    };
    [of(&|names| names.split(',').any(|name| name == controller)), of(&str::is_empty)]
}

/// Whether a limit of a group bounds anything. Version 1 writes a number near 2⁶³ for no limit.
pub fn bounds(limit: &str) -> bool {
    limit.trim().parse().is_ok_and(|limit: u64| limit < 1 << 60)
}

/// The soft limit of a resource in `/proc/PID/limits`; `None` without a limit.
pub fn process_limit(limits: &str, resource: Resource) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(resource.limit()))?;
    line.split_whitespace().next()?.parse().ok()
}
