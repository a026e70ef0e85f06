//! The limits of a run. Every field has its unit in its name.

use std::time::Duration;

const MIB: u64 = 1 << 20;

/// The limits of one run. `None` means no limit of that kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Wall-clock time from the program's exec.
    pub wall: Duration,
    /// CPU seconds of any one process (`RLIMIT_CPU`).
    pub cpu_seconds_max: u64,
    /// CPU time of the whole sandbox, read from its cgroup.
    pub cpu_total_max: Option<Duration>,
    /// Memory of the whole sandbox, including tmpfs pages, excluding swap.
    pub memory_bytes_max: u64,
    /// Processes and threads of the tenant, without Cofferdam's init.
    pub processes_max: u64,
    /// CPUs in thousandths (1500 = one and a half).
    pub cpus_milli_max: Option<u64>,
    /// Bytes on all writable file systems of the sandbox together.
    pub disk_bytes_max: u64,
    /// Files and directories on those file systems.
    pub disk_inodes_max: u64,
    /// Size of one file, bytes (`RLIMIT_FSIZE`).
    pub file_bytes_max: u64,
    /// Open descriptors of one process (`RLIMIT_NOFILE`).
    pub open_files_max: u64,
    /// Bytes of each of stdout and stderr.
    pub output_bytes_max: Option<u64>,
}

impl Default for Limits {
    /// The limits of `POST /run`.
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(30),
            cpu_seconds_max: 30,
            cpu_total_max: None,
            memory_bytes_max: 768 * MIB,
            processes_max: 256,
            cpus_milli_max: None,
            disk_bytes_max: 512 * MIB,
            disk_inodes_max: 65_536,
            file_bytes_max: 64 * MIB,
            open_files_max: 256,
            output_bytes_max: Some(MIB),
        }
    }
}

impl Limits {
    /// Returns the limits with another wall time, and with CPU seconds to match: the wall time
    /// rounded up to whole seconds, at least one.
    pub fn with_wall(mut self, wall: Duration) -> Self {
        let whole_seconds = wall.as_secs() + u64::from(wall.subsec_nanos() > 0);
        self.wall = wall;
        self.cpu_seconds_max = whole_seconds.max(1);
        self
    }
}

/// The limit that ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// Wall-clock time.
    WallTime,
    /// CPU time of one process or of the sandbox.
    CpuTime,
    /// Memory of the sandbox.
    Memory,
    /// Number of processes and threads.
    Processes,
    /// Bytes or inodes on the writable file systems, or the size of one file.
    Disk,
    /// Bytes on stdout or stderr.
    Output,
}

impl LimitKind {
    /// The word for it in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::WallTime => "wall_time",
            Self::CpuTime => "cpu_time",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Disk => "disk",
            Self::Output => "output",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_seconds_follow_the_wall_time_rounded_up() {
        let table = [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (1_999, 2), (30_000, 30)];
        for (wall_ms, cpu_seconds) in table {
            let limits = Limits::default().with_wall(Duration::from_millis(wall_ms));
            assert_eq!(limits.cpu_seconds_max, cpu_seconds, "{wall_ms} ms");
        }
    }
}
