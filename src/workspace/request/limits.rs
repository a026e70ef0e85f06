//! Values with a default and a maximum.

use serde::{Deserialize, Serialize};

use crate::config::{RequestRange, RequestRanges};
use crate::workspace::error::EngineError;

/// The largest share of CPUs, percent of one: more CPUs than a host has.
const CPU_PERCENT_MAX: u64 = 409_600;
/// The longest CPU time, milliseconds: a month.
const CPU_TIME_MS_MAX: u64 = 31 * 24 * 3_600_000;

/// The value of the field `path`: the default if it is absent or 0.
///
/// # Errors
/// It is above the maximum.
pub fn pick(range: RequestRange, path: &str, value: Option<u64>) -> Result<u64, EngineError> {
    match value.unwrap_or_default() {
        0 => Ok(range.default),
        value if value <= range.max => Ok(value),
        _ => {
            let fault = format!("more than the maximum here, {}", range.max);
            Err(EngineError::invalid(path, fault).with("max", range.max))
        }
    }
}

/// `limits` of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsRequest {
    /// Percent of one CPU.
    pub cpu_percent: Option<u64>,
    /// Memory, MiB.
    pub memory_mb: Option<u64>,
    /// Processes and threads.
    pub max_pids: Option<u64>,
    /// CPU time of all processes, milliseconds.
    pub cpu_time_ms: Option<u64>,
    /// Bytes of stdout that are kept.
    pub stdout_bytes: Option<u64>,
    /// Bytes of stderr that are kept.
    pub stderr_bytes: Option<u64>,
}

/// The limits of a program. 0 means no limit of CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramLimits {
    /// Percent of one CPU; 0 for all CPUs.
    pub cpu_percent: u64,
    /// Memory, MiB.
    pub memory_mb: u64,
    /// Processes and threads.
    pub max_pids: u64,
    /// CPU time of all processes, milliseconds; 0 for no limit.
    pub cpu_time_ms: u64,
    /// Bytes of stdout that are kept.
    pub stdout_bytes: u64,
    /// Bytes of stderr that are kept.
    pub stderr_bytes: u64,
}

impl ProgramLimits {
    /// The limits of a program for which nothing is asked.
    pub fn default_of(ranges: &RequestRanges) -> Self {
        Self {
            cpu_percent: 0,
            memory_mb: ranges.memory_mb.default,
            max_pids: ranges.pids.default,
            cpu_time_ms: 0,
            stdout_bytes: ranges.output_bytes.default,
            stderr_bytes: ranges.output_bytes.default,
        }
    }

    /// These limits with those of `request`, in which absent and 0 mean no change.
    ///
    /// # Errors
    /// The first limit above its maximum.
    pub fn with(
        self,
        request: Option<&LimitsRequest>,
        ranges: &RequestRanges,
    ) -> Result<Self, EngineError> {
        let Some(request) = request else { return Ok(self) };
        let cpu = RequestRange { default: self.cpu_percent, max: CPU_PERCENT_MAX };
        let memory = RequestRange { default: self.memory_mb, ..ranges.memory_mb };
        let pids = RequestRange { default: self.max_pids, ..ranges.pids };
        let time = RequestRange { default: self.cpu_time_ms, max: CPU_TIME_MS_MAX };
        let stdout = RequestRange { default: self.stdout_bytes, ..ranges.output_bytes };
        let stderr = RequestRange { default: self.stderr_bytes, ..ranges.output_bytes };
        Ok(Self {
            cpu_percent: pick(cpu, "limits.cpu_percent", request.cpu_percent)?,
            memory_mb: pick(memory, "limits.memory_mb", request.memory_mb)?,
            max_pids: pick(pids, "limits.max_pids", request.max_pids)?,
            cpu_time_ms: pick(time, "limits.cpu_time_ms", request.cpu_time_ms)?,
            stdout_bytes: pick(stdout, "limits.stdout_bytes", request.stdout_bytes)?,
            stderr_bytes: pick(stderr, "limits.stderr_bytes", request.stderr_bytes)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_and_0_are_the_default_and_more_than_the_maximum_is_refused() {
        let range = RequestRange { default: 5, max: 9 };
        for (value, picked) in [(None, 5), (Some(0), 5), (Some(1), 1), (Some(9), 9)] {
            assert_eq!(pick(range, "ttl_ms", value), Ok(picked), "{value:?}");
        }
        let error = pick(range, "ttl_ms", Some(10)).unwrap_err();
        assert_eq!((&error.details["path"], &error.details["max"]), (&"ttl_ms".into(), &9.into()));
    }

    #[test]
    fn a_program_has_the_limits_of_its_workspace_unless_it_names_others() {
        let ranges = RequestRanges::default();
        let range = |default, max| RequestRange { default, max };
        let ranges = RequestRanges {
            memory_mb: range(768, 2048),
            pids: range(256, 1024),
            output_bytes: range(10, 20),
            ..ranges
        };
        let workspace = ProgramLimits { memory_mb: 64, ..ProgramLimits::default_of(&ranges) };
        let asked = LimitsRequest { max_pids: Some(7), memory_mb: Some(0), ..Default::default() };
        let limits = workspace.with(Some(&asked), &ranges).unwrap();
        assert_eq!((limits.memory_mb, limits.max_pids, limits.stdout_bytes), (64, 7, 10));
        assert_eq!(workspace.with(None, &ranges), Ok(workspace));
        let asked = LimitsRequest { stderr_bytes: Some(21), ..Default::default() };
        let error = workspace.with(Some(&asked), &ranges).unwrap_err();
        assert_eq!(error.details["path"], "limits.stderr_bytes");
    }
}
