//! What the sandbox of each phase may use.

use std::thread::available_parallelism;
use std::time::Duration;

use super::task::TaskBounds;
use cofferdam_core::Limits;

/// Open files of one process.
const OPEN_FILES_MAX: u64 = 4096;

/// What the sandbox of a phase may use, besides its time and the room of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseBounds {
    /// Bytes of memory.
    pub memory_bytes_max: u64,
    /// Processes and threads.
    pub processes_max: u64,
    /// CPUs in thousandths; `None` for no limit.
    pub cpus_milli_max: Option<u64>,
}

impl PhaseBounds {
    /// These, or less where a task asks for less.
    #[must_use]
    pub fn within(self, asked: TaskBounds) -> Self {
        let cpus = self.cpus_milli_max.into_iter().chain(asked.milli_cpus);
        Self {
            memory_bytes_max: self.memory_bytes_max.min(asked.memory_bytes.unwrap_or(u64::MAX)),
            cpus_milli_max: cpus.min(),
            ..self
        }
    }

    /// The limits of a sandbox that may run for `wall`. Its CPU time is that of all its CPUs.
    pub fn limits(&self, wall: Duration) -> Limits {
        let host_cpus = available_parallelism().map_or(1, usize::from);
        let host_milli = u64::try_from(host_cpus).unwrap_or(u64::MAX).saturating_mul(1000);
        let milli = self.cpus_milli_max.unwrap_or(host_milli).clamp(1, host_milli.max(1));
        let cpus = u32::try_from(milli.div_ceil(1000)).unwrap_or(u32::MAX);
        let limits = Limits {
            cpu_total_max: Some(wall.saturating_mul(cpus)),
            memory_bytes_max: self.memory_bytes_max,
            processes_max: self.processes_max,
            cpus_milli_max: self.cpus_milli_max,
            file_bytes_max: u64::MAX,
            open_files_max: OPEN_FILES_MAX,
            output_bytes_max: None,
            ..Limits::default().with_wall(wall.saturating_mul(cpus))
        };
        Limits { wall, ..limits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_gets_what_it_asks_for_and_at_most_what_the_service_gives() {
        let own = |memory_bytes_max, cpus_milli_max| PhaseBounds {
            memory_bytes_max,
            processes_max: 2,
            cpus_milli_max,
        };
        let asked = |memory_bytes, milli_cpus| TaskBounds {
            memory_bytes,
            milli_cpus,
            ..TaskBounds::default()
        };
        for (bounds, asked, wanted) in [
            (own(8, None), asked(None, None), own(8, None)),
            (own(8, None), asked(Some(4), Some(500)), own(4, Some(500))),
            (own(8, Some(1000)), asked(Some(16), Some(4000)), own(8, Some(1000))),
            (own(8, Some(1000)), asked(None, Some(500)), own(8, Some(500))),
        ] {
            assert_eq!(bounds.within(asked), wanted);
        }
    }

    #[test]
    fn the_cpu_time_is_the_wall_time_of_all_cpus() {
        let bounds =
            PhaseBounds { memory_bytes_max: 1, processes_max: 2, cpus_milli_max: Some(500) };
        let limits = bounds.limits(Duration::from_secs(10));
        assert_eq!(
            (limits.wall, limits.cpu_total_max),
            (Duration::from_secs(10), Some(limits.wall))
        );
        assert_eq!((limits.cpu_seconds_max, limits.file_bytes_max), (10, u64::MAX));
        assert_eq!((limits.open_files_max, limits.output_bytes_max), (4096, None));
    }
}
