//! The limits of a job, as those of its parts.

use std::time::Duration;

use cofferdam_core::Limits;
use cofferdam_core::job::JobLimits;
use cofferdam_tree::SnapshotLimits;

/// How much is copied.
pub fn snapshot_limits(limits: &JobLimits) -> SnapshotLimits {
    SnapshotLimits { files_max: limits.snapshot_files, bytes_max: limits.snapshot_bytes }
}

/// What the program may use.
pub fn run_limits(limits: &JobLimits) -> Limits {
    let defaults = Limits::default();
    let cpu_time = Duration::from_millis(limits.cpu_time_ms);
    let wall = Duration::from_millis(limits.timeout_ms);
    Limits {
        wall,
        cpu_total_max: Some(cpu_time),
        memory_bytes_max: limits.memory_bytes,
        processes_max: limits.processes,
        disk_bytes_max: limits.disk_bytes,
        file_bytes_max: limits.disk_bytes.max(defaults.file_bytes_max),
        // Output beyond what is stored is hashed and dropped.
        output_bytes_max: None,
        // The limit of each process; `cpu_total_max` limits all of them together.
        ..defaults.with_wall(cpu_time)
    }
}
