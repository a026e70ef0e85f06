//! What a group has used, read from its files.

use std::time::Duration;

use super::control::CgroupVersion;
use super::directory::Directory;

/// What a box has used so far. A figure is `None` where no controller tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupUsage {
    /// CPU time of all its processes, the ended ones included.
    pub cpu: Option<Duration>,
    /// The most memory it held at once.
    pub memory_peak: Option<MemoryPeak>,
    /// The most processes and threads of the tenant alive at once, our init
    /// not counted.
    pub processes_peak: Option<u64>,
    /// Processes killed because the memory limit left nothing else; version 1 tells since Linux 4.13.
    pub oom_kills: Option<u64>,
    /// Calls refused at the memory limit, with nobody left to kill. Version 1
    /// does not tell.
    pub memory_refused: u64,
    /// Forks refused at the limit of processes.
    pub processes_refused: u64,
}

/// A memory peak and who told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPeak {
    /// Bytes, page cache and tmpfs pages included.
    pub bytes: u64,
    /// The version whose controller counted them.
    pub source: CgroupVersion,
}

/// CPU time of the group. Version 2 tells it without a controller.
pub(super) fn cpu_time(directory: &Directory) -> Option<Duration> {
    match directory.version() {
        CgroupVersion::V1 => number(directory, "cpuacct.usage").map(Duration::from_nanos),
        CgroupVersion::V2 => keyed(directory, "cpu.stat", "usage_usec").map(Duration::from_micros),
    }
}

/// The memory peak; none on version 2 before Linux 5.19.
pub(super) fn memory_peak(directory: &Directory) -> Option<MemoryPeak> {
    let source = directory.version();
    let file = match source {
        CgroupVersion::V1 => "memory.max_usage_in_bytes",
        CgroupVersion::V2 => "memory.peak",
    };
    number(directory, file).map(|bytes| MemoryPeak { bytes, source })
}

/// Processes killed for want of memory, where that is counted, and calls refused.
pub(super) fn memory_events(directory: &Directory) -> (Option<u64>, u64) {
    let file = match directory.version() {
        CgroupVersion::V1 => "memory.oom_control",
        CgroupVersion::V2 => "memory.events",
    };
    let text = directory.read(file).unwrap_or_default();
    let kills = value_of(&text, "oom_kill");
    let shortages = value_of(&text, "oom").unwrap_or(0);
    // A shortage that a kill has made good is counted as both.
    (kills, shortages.saturating_sub(kills.unwrap_or(0)))
}

/// The most processes alive at once, all of the group; none before Linux 6.1.
pub(super) fn processes_peak(directory: &Directory) -> Option<u64> {
    number(directory, "pids.peak")
}

/// Forks refused.
pub(super) fn processes_refused(directory: &Directory) -> u64 {
    keyed(directory, "pids.events", "max").unwrap_or(0)
}

fn number(directory: &Directory, file: &str) -> Option<u64> {
    directory.read(file).ok()?.trim_end().parse().ok()
}

pub(super) fn keyed(directory: &Directory, file: &str, key: &str) -> Option<u64> {
    value_of(&directory.read(file).ok()?, key)
}

/// The number beside `key` in a text of `key number` lines.
pub(super) fn value_of(text: &str, key: &str) -> Option<u64> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.find(|(name, _)| *name == key)?.1.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyed_file_is_read_by_whole_names() {
        let text = "oom_kill_disable 1\nunder_oom 0\noom_kill 3\nbroken\n";
        let table =
            [("oom_kill", Some(3)), ("oom", None), ("broken", None), ("under_oom", Some(0))];
        for (key, value) in table {
            assert_eq!(value_of(text, key), value, "{key}");
        }
        assert_eq!(value_of("max -1\n", "max"), None);
    }
}
