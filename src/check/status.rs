//! What the service tells of itself: what it enforces, how busy it is, what it can run.

use serde::Serialize;

use cofferdam_core::Enforced;
use cofferdam_sandbox::host::probe;

/// Paths every Linux system has; any other one says something of this host.
const COMMON_PATHS: [&str; 5] = ["/", "/proc", "/proc/self", "/sys", "/sys/fs/cgroup"];

/// The whole of it, keys in the order they are told in.
#[derive(Debug, Serialize)]
pub struct ServiceStatus<'a> {
    /// Of this program.
    pub version: &'static str,
    /// Since it could first serve.
    pub uptime_seconds: u64,
    /// Whether new runs are refused.
    pub draining: bool,
    /// Runs.
    pub slots: SlotsStatus,
    /// Boxes made ahead.
    pub standby: StandbyStatus,
    /// Slugs that can be run.
    pub languages: Vec<&'a str>,
    /// What was found out at the start.
    #[serde(flatten)]
    pub host: &'a HostReport,
}

/// Runs now and at most.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SlotsStatus {
    /// Live ones.
    pub in_use: usize,
    /// At once.
    pub capacity: usize,
}

/// Boxes made ahead, now and at most.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct StandbyStatus {
    /// Ready ones.
    pub ready: usize,
    /// At once.
    pub max: usize,
}

/// What the host enforces, as it was found at the start, without its paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostReport {
    enforced: Enforced,
    not_enforced: Vec<String>,
    #[serde(flatten)]
    examined: Examined,
}

/// What came of trying every control.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Examined {
    /// What kind of place this is.
    pub environment: &'static str,
    /// Each control.
    pub controls: Vec<ControlStatus>,
}

/// One control, as `cofferdam doctor` tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ControlStatus {
    /// Its name.
    pub name: &'static str,
    /// `enforced`, `degraded` or `missing`.
    pub status: &'static str,
    /// Why, or by what.
    pub reason: String,
    /// What to change, where something should be.
    pub fix: String,
}

impl HostReport {
    /// What everybody may know of it.
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
        let told = |control: &probe::ProbedControl| ControlStatus {
            name: control.name,
            status: control.status.word(),
            reason: control.reason.clone(),
            fix: control.fix.clone(),
        };
        Self {
            environment: report.host_kind.word(),
            controls: report.controls.iter().map(told).collect(),
        }
    }
}

/// `text` without the paths in it that are this host's own.
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
    fn a_path_of_this_host_is_not_told() {
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
