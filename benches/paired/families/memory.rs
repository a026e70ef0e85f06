//! The peak of a service's memory.

use std::fs;
use std::thread;
use std::time::Duration;

use cofferdam_test_server::host::resident_bytes;

use crate::report::Report;
use crate::stats::{Spread, median};

const MIB: f64 = 1_048_576.0;
const REST: Duration = Duration::from_millis(500);
/// Resets the peak of a process's resident memory.
const RESET_PEAK: &str = "5";

/// A service's memory, MiB.
pub struct ServicePeak {
    before: f64,
    peak: f64,
}

impl ServicePeak {
    /// How much memory the service has at most during `work`.
    pub fn during(pid: i32, work: impl FnOnce()) -> Self {
        thread::sleep(REST);
        fs::write(format!("/proc/{pid}/clear_refs"), RESET_PEAK).unwrap();
        let before = resident_bytes(pid) as f64 / MIB;
        work();
        Self { before, peak: peak_bytes(pid) as f64 / MIB }
    }
}

/// Adds the row of the median of what was `taken`.
pub fn row(report: &mut Report, key: &str, taken: &[ServicePeak]) {
    let peaks = median(taken.iter().map(|it| it.peak));
    let befores = median(taken.iter().map(|it| it.before));
    let more = Spread::of(taken.iter().map(|it| it.peak - it.before));
    report.row(key, peaks, befores, more);
}

fn peak_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
