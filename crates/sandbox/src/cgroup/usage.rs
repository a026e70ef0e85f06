//! The usage of a group, read from its files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::fcntl::OFlag;

use super::control::{CgroupControl, CgroupVersion};
use super::directory::CgroupDirectory;

/// The files of the peak of memory, by version.
const MEMORY_PEAK_FILES: (&str, &str) = ("memory.max_usage_in_bytes", "memory.peak");

/// The largest part of a usage file that is read. The needed values come first.
const TEXT_BYTES_MAX: usize = 512;

/// The usage of a sandbox so far. A value is `None` if no controller reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupUsage {
    /// CPU time of all processes, ended ones included.
    pub cpu: Option<Duration>,
    /// The peak of memory.
    pub memory_peak: Option<MemoryPeak>,
    /// The peak of the tenant's processes and threads, without the init.
    pub processes_peak: Option<u64>,
    /// Processes killed at the memory limit. Version 1 reports it since Linux 4.13.
    pub oom_kills: Option<u64>,
    /// Calls refused at the memory limit without a process to kill. Version 1 does not report
    /// them.
    pub memory_refused: u64,
    /// Forks refused at the process limit.
    pub processes_refused: u64,
}

/// A memory peak and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPeak {
    /// Bytes, page cache and tmpfs pages included.
    pub bytes: u64,
    /// The version whose controller counted them.
    pub source: CgroupVersion,
}

/// The usage files of a group. They are opened with the group, so that the response of a run waits
/// for one system call per value.
#[derive(Debug, Default)]
pub(super) struct UsageFiles {
    cpu_time: Option<UsageFile>,
    memory_peak: Option<UsageFile>,
    memory_events: Option<UsageFile>,
    processes_peak: Option<UsageFile>,
}

impl UsageFiles {
    /// Opens the files of `control` in `directory`. Files that the kernel lacks are left out.
    pub(super) fn open(&mut self, control: CgroupControl, directory: &CgroupDirectory) {
        match control {
            CgroupControl::CpuTime => {
                self.cpu_time = UsageFile::open(directory, "cpuacct.usage", "cpu.stat");
            }
            CgroupControl::Memory => {
                let (peak, events) = (&mut self.memory_peak, &mut self.memory_events);
                *peak = UsageFile::open(directory, MEMORY_PEAK_FILES.0, MEMORY_PEAK_FILES.1);
                *events = UsageFile::open(directory, "memory.oom_control", "memory.events");
            }
            CgroupControl::Processes => {
                self.processes_peak = UsageFile::open(directory, "pids.peak", "pids.peak");
            }
            CgroupControl::Cpu | CgroupControl::Kill => {}
        }
    }

    /// CPU time of the group. Version 2 reports it without a controller.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        let file = self.cpu_time.as_ref()?;
        match file.version {
            CgroupVersion::V1 => file.number().map(Duration::from_nanos),
            CgroupVersion::V2 => file.keyed("usage_usec").map(Duration::from_micros),
        }
    }

    /// The memory peak; `None` on version 2 before Linux 5.19.
    pub(super) fn memory_peak(&self) -> Option<MemoryPeak> {
        let file = self.memory_peak.as_ref()?;
        file.number().map(|bytes| MemoryPeak { bytes, source: file.version })
    }

    /// Counts the peak of memory from now on, in `directory`, where the kernel can: version 2 since
    /// Linux 6.12, for the descriptor that was written to.
    pub(super) fn restart_memory_peak(&mut self, directory: &CgroupDirectory) {
        let (v1, v2) = MEMORY_PEAK_FILES;
        let Some(file) = UsageFile::open_as(directory, v1, v2, OFlag::O_RDWR) else { return };
        if file.file.write_at(b"0", 0).is_ok() {
            self.memory_peak = Some(file);
        }
    }

    /// The number of OOM kills, if the kernel counts them, and of failed allocations.
    pub(super) fn memory_events(&self) -> (Option<u64>, u64) {
        let text = self.memory_events.as_ref().and_then(UsageFile::text).unwrap_or_default();
        let kills = value_of(&text, "oom_kill");
        let shortages = value_of(&text, "oom").unwrap_or(0);
        // A shortage that ended with a kill is counted as both.
        (kills, shortages.saturating_sub(kills.unwrap_or(0)))
    }

    /// The peak of all processes of the group; `None` before Linux 6.1.
    pub(super) fn processes_peak(&self) -> Option<u64> {
        self.processes_peak.as_ref()?.number()
    }
}

/// One usage file.
#[derive(Debug)]
struct UsageFile {
    file: File,
    version: CgroupVersion,
}

impl UsageFile {
    fn open(directory: &CgroupDirectory, v1: &str, v2: &str) -> Option<Self> {
        Self::open_as(directory, v1, v2, OFlag::O_RDONLY)
    }

    fn open_as(directory: &CgroupDirectory, v1: &str, v2: &str, access: OFlag) -> Option<Self> {
        let version = directory.version();
        let name = match version {
            CgroupVersion::V1 => v1,
            CgroupVersion::V2 => v2,
        };
        let file = directory.open_file(name, access).ok()?.into();
        Some(Self { file, version })
    }

    fn text(&self) -> Option<String> {
        let mut text = [0; TEXT_BYTES_MAX];
        let count = self.file.read_at(&mut text, 0).ok()?;
        Some(String::from_utf8_lossy(text.get(..count)?).into_owned())
    }

    fn number(&self) -> Option<u64> {
        self.text()?.trim_end().parse().ok()
    }

    fn keyed(&self, key: &str) -> Option<u64> {
        value_of(&self.text()?, key)
    }
}

/// The memory that a group uses now.
pub(super) fn memory_now(directory: &CgroupDirectory) -> Option<u64> {
    let file = match directory.version() {
        CgroupVersion::V1 => "memory.usage_in_bytes",
        CgroupVersion::V2 => "memory.current",
    };
    directory.read(file).ok()?.trim_end().parse().ok()
}

/// Forks refused.
pub(super) fn processes_refused(directory: &CgroupDirectory) -> u64 {
    keyed(directory, "pids.events", "max").unwrap_or(0)
}

pub(super) fn keyed(directory: &CgroupDirectory, file: &str, key: &str) -> Option<u64> {
    value_of(&directory.read(file).ok()?, key)
}

/// The number after `key` in a text of `key number` lines.
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
