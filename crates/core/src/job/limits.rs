//! The limits of a job.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The limits of one job, each with its unit in its name. A request may lower any limit, or raise
/// it up to the runner's maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobLimits {
    /// Wall-clock time of the program, milliseconds.
    #[schemars(range(min = 1))]
    pub timeout_ms: u64,
    /// CPU time of all its processes together, milliseconds.
    #[schemars(range(min = 1))]
    pub cpu_time_ms: u64,
    /// Memory of all its processes together, including what they write to files, bytes.
    #[schemars(range(min = 1))]
    pub memory_bytes: u64,
    /// Processes and threads alive at once.
    #[schemars(range(min = 1))]
    pub processes: u64,
    /// Data written to the workspace and `/tmp` together, bytes.
    pub disk_bytes: u64,
    /// Kept part of stdout, bytes; the rest is only counted and hashed.
    pub stdout_bytes: u64,
    /// Kept part of stderr, bytes; the rest is only counted and hashed.
    pub stderr_bytes: u64,
    /// Number of artifacts that are kept.
    pub artifact_count: u64,
    /// Kept part of each artifact, bytes.
    pub artifact_file_bytes: u64,
    /// Kept part of all artifacts together, bytes.
    pub artifact_total_bytes: u64,
    /// Size of the result as JSON, bytes; texts are cut to fit.
    #[schemars(range(min = 65_536))]
    pub record_bytes: u64,
    /// Number of files and links copied into the workspace, and separately of directories.
    pub snapshot_files: u64,
    /// Contents of those files together, bytes.
    pub snapshot_bytes: u64,
}

impl JobLimits {
    /// The least `record_bytes`: a record without texts fits.
    pub const RECORD_BYTES_MIN: u64 = 64 * KIB;

    /// All limits with their names, in JSON order.
    pub fn named(&self) -> [(&'static str, u64); 13] {
        [
            ("timeout_ms", self.timeout_ms),
            ("cpu_time_ms", self.cpu_time_ms),
            ("memory_bytes", self.memory_bytes),
            ("processes", self.processes),
            ("disk_bytes", self.disk_bytes),
            ("stdout_bytes", self.stdout_bytes),
            ("stderr_bytes", self.stderr_bytes),
            ("artifact_count", self.artifact_count),
            ("artifact_file_bytes", self.artifact_file_bytes),
            ("artifact_total_bytes", self.artifact_total_bytes),
            ("record_bytes", self.record_bytes),
            ("snapshot_files", self.snapshot_files),
            ("snapshot_bytes", self.snapshot_bytes),
        ]
    }

    /// The limit named `name`, mutable; `None` if there is no such limit.
    pub fn named_mut(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "timeout_ms" => &mut self.timeout_ms,
            "cpu_time_ms" => &mut self.cpu_time_ms,
            "memory_bytes" => &mut self.memory_bytes,
            "processes" => &mut self.processes,
            "disk_bytes" => &mut self.disk_bytes,
            "stdout_bytes" => &mut self.stdout_bytes,
            "stderr_bytes" => &mut self.stderr_bytes,
            "artifact_count" => &mut self.artifact_count,
            "artifact_file_bytes" => &mut self.artifact_file_bytes,
            "artifact_total_bytes" => &mut self.artifact_total_bytes,
            "record_bytes" => &mut self.record_bytes,
            "snapshot_files" => &mut self.snapshot_files,
            "snapshot_bytes" => &mut self.snapshot_bytes,
            _ => return None,
        })
    }

    /// The least valid value of the limit `name`.
    pub fn least(name: &str) -> u64 {
        match name {
            "timeout_ms" | "cpu_time_ms" | "memory_bytes" | "processes" => 1,
            "record_bytes" => Self::RECORD_BYTES_MIN,
            _ => 0,
        }
    }
}

impl Default for JobLimits {
    fn default() -> Self {
        Self {
            timeout_ms: 30_000,
            cpu_time_ms: 30_000,
            memory_bytes: 512 * MIB,
            processes: 256,
            disk_bytes: 256 * MIB,
            stdout_bytes: MIB,
            stderr_bytes: MIB,
            artifact_count: 100,
            artifact_file_bytes: 4 * MIB,
            artifact_total_bytes: 64 * MIB,
            record_bytes: 4 * MIB,
            snapshot_files: 100_000,
            snapshot_bytes: 1024 * MIB,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_json_and_each_limit_can_be_changed() {
        let mut limits = JobLimits::default();
        let wire = serde_json::to_value(limits).unwrap();
        assert_eq!(limits.named().len(), wire.as_object().unwrap().len());
        for (name, value) in limits.named() {
            assert_eq!(wire[name], value);
            *limits.named_mut(name).unwrap() += 1;
            assert_eq!(serde_json::to_value(limits).unwrap()[name], value + 1);
            assert!(JobLimits::least(name) <= value);
        }
        assert_eq!(limits.named_mut("wall"), None);
    }
}
