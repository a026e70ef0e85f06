//! The public status of the service: what it enforces, how busy it is, what it can run.

use std::collections::BTreeMap;

use serde::Serialize;

use cofferdam_core::{Enforced, PrestartMetrics};
use cofferdam_sandbox::host::probe;

/// Paths of every Linux system. Any other path would reveal something about this host.
const COMMON_PATHS: [&str; 5] = ["/", "/proc", "/proc/self", "/sys", "/sys/fs/cgroup"];

/// The status, with its keys in the order of the answer.
#[derive(Debug, Serialize)]
pub struct ServiceStatus<'a> {
    /// The version of this program.
    pub version: &'static str,
    /// Seconds since the service was ready.
    pub uptime_seconds: u64,
    /// Whether new runs are refused.
    pub draining: bool,
    /// The slots of runs.
    pub slots: SlotsStatus,
    /// The standby pool.
    pub standby: StandbyStatus,
    /// The sandboxes whose runtime is started ahead.
    pub prestart: PrestartStatus,
    /// The slugs that can run.
    pub languages: Vec<&'a str>,
    /// The host, as probed at the start.
    #[serde(flatten)]
    pub host: &'a HostReport,
}

/// The slots of runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SlotsStatus {
    /// Permits in use.
    pub in_use: usize,
    /// All slots.
    pub capacity: usize,
}

/// The standby pool.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct StandbyStatus {
    /// Prepared sandboxes.
    pub ready: usize,
    /// The most prepared sandboxes.
    pub max: usize,
}

/// The sandboxes whose runtime is started ahead, and waits.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PrestartStatus {
    /// How many are ready, by language.
    pub ready: BTreeMap<String, usize>,
    /// Their memory.
    pub memory_bytes: u64,
    /// The most memory that they may have; 0 if no runtime is started ahead.
    pub memory_bytes_max: u64,
    /// Runtimes that did not get ready.
    pub failed: u64,
}

impl PrestartStatus {
    /// What of `metrics` is public.
    pub fn of(metrics: PrestartMetrics) -> Self {
        let PrestartMetrics { ready, bytes_max, failed, .. } = metrics;
        let memory_bytes = ready.iter().map(|warm| warm.bytes).sum();
        let ready = ready.into_iter().map(|warm| (warm.label, warm.count)).collect();
        Self { ready, memory_bytes, memory_bytes_max: bytes_max, failed }
    }
}

/// What the host enforces, as probed at the start, without its paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostReport {
    enforced: Enforced,
    not_enforced: Vec<String>,
    #[serde(flatten)]
    examined: Examined,
}

/// The result of probing every control.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Examined {
    /// The kind of host.
    pub environment: &'static str,
    /// Each control.
    pub controls: Vec<ControlStatus>,
}

/// One control, as `cofferdam doctor` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ControlStatus {
    /// Its name.
    pub name: &'static str,
    /// `enforced`, `degraded` or `missing`.
    pub status: &'static str,
    /// The reason, or the mechanism.
    pub reason: String,
    /// What to change, if anything.
    pub fix: String,
}

impl HostReport {
    /// The public part of the report.
    pub fn new(enforced: Enforced, not_enforced: &[String], mut examined: Examined) -> Self {
        let not_enforced = not_enforced.iter().map(|gap| without_paths(gap)).collect();
        for control in &mut examined.controls {
            control.reason = without_paths(&control.reason);
        }
        Self { enforced, not_enforced, examined }
    }
}

impl From<&probe::ProbeReport> for Examined {
    fn from(report: &probe::ProbeReport) -> Self {
        Self {
            environment: report.host_kind.word(),
            controls: report.controls.iter().map(Into::into).collect(),
        }
    }
}

impl From<&probe::ProbedControl> for ControlStatus {
    fn from(control: &probe::ProbedControl) -> Self {
        Self {
            name: control.name,
            status: control.status.word(),
            reason: control.reason.clone(),
            fix: control.fix.clone(),
        }
    }
}

/// `text` without the paths that are specific to this host.
fn without_paths(text: &str) -> String {
    let ends_path = |c: char| c.is_whitespace() || ";:,|@()'\"=".contains(c);
    let mut told = String::with_capacity(text.len());
    for piece in text.split_inclusive(ends_path) {
        let word = piece.trim_end_matches(ends_path);
        let is_private = word.starts_with('/') && !COMMON_PATHS.contains(&word);
        told.push_str(if is_private { "(path)" } else { word });
        told.push_str(piece.get(word.len()..).unwrap_or_default());
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_this_host_are_removed() {
        for (text, told) in [
            ("tried", "tried"),
            ("mount /proc: EPERM", "mount /proc: EPERM"),
            (
                "cgroup2: /sys/fs/cgroup/x.service/cofferdam-1: EACCES; cgroup1: /sys/fs/cgroup: EROFS",
                "cgroup2: (path): EACCES; cgroup1: /sys/fs/cgroup: EROFS",
            ),
            ("to the host's |/usr/share/apport/apport -p%p", "to the host's |(path) -p%p"),
            ("(/srv/secret)", "((path))"),
            ("cpu.max / 2", "cpu.max / 2"),
        ] {
            assert_eq!(without_paths(text), told);
        }
    }
}
