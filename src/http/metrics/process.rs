//! Metrics of this process from the kernel, under the standard names of Prometheus exporters.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;

/// Clock ticks per second in `/proc/PID/stat`: the same on every architecture we build for.
const TICKS_PER_SECOND: u64 = 100;
/// The index of the start time in `/proc/PID/stat`, counted after the name. `proc(5)` counts from
/// 1; the name is field 2.
const START_AFTER_NAME: usize = 22 - 3;

/// What stays constant while the process lives.
#[derive(Debug)]
pub struct ProcessMetrics {
    started_seconds: Option<u64>,
}

/// What changes. A value is `None` if the kernel does not provide it.
#[derive(Debug)]
pub struct ProcessSample {
    /// CPU time of all threads.
    pub cpu: Option<Duration>,
    /// Resident memory.
    pub resident_bytes: Option<u64>,
    /// Mapped memory.
    pub virtual_bytes: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Open descriptors.
    pub open_fds: Option<u64>,
    /// The limit of open descriptors.
    pub max_fds: Option<u64>,
}

impl ProcessMetrics {
    /// Reads the start time of this process.
    pub fn new() -> Self {
        Self { started_seconds: started_seconds() }
    }

    /// Returns the start time, in seconds since 1970.
    pub fn started_seconds(&self) -> Option<u64> {
        self.started_seconds
    }

    /// Reads the current values.
    pub fn now(&self) -> ProcessSample {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| -> Option<u64> {
            let value = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
            status.lines().find_map(value)?.split_whitespace().next()?.parse().ok()
        };
        let bytes = |name: &str| field(name).map(|kibibytes| kibibytes * 1024);
        ProcessSample {
            cpu: cpu(),
            resident_bytes: bytes("VmRSS"),
            virtual_bytes: bytes("VmSize"),
            threads: field("Threads"),
            // Excludes the descriptor of this directory.
            open_fds: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|entries| (entries.count() as u64).saturating_sub(1)),
            max_fds: getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft),
        }
    }
}

fn cpu() -> Option<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    u64::try_from(micros).ok().map(Duration::from_micros)
}

fn started_seconds() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name can contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(") ")?;
    let ticks: u64 = after_name.split(' ').nth(START_AFTER_NAME)?.parse().ok()?;
    let host = fs::read_to_string("/proc/stat").ok()?;
    let booted = host.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(booted.trim().parse::<u64>().ok()? + ticks / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_values_are_plausible() {
        let process = ProcessMetrics::new();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let age = now - process.started_seconds().unwrap();
        assert!(age < 3600, "{age} s");
        let before = process.now();
        let file = fs::File::open("/proc/self/stat").unwrap();
        let after = process.now();
        assert!(after.open_fds > Some(2) && before.open_fds <= after.max_fds, "{after:?}");
        assert!(after.resident_bytes > Some(1 << 20), "{after:?}");
        assert!(after.virtual_bytes > after.resident_bytes, "{after:?}");
        assert!(after.threads >= Some(1) && after.cpu >= before.cpu, "{after:?}");
        drop(file);
    }
}
