//! Finds the processes of one attack anywhere on the host.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cofferdam_test_server::service::wait_until;

/// How long killed processes may take to disappear.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// A word among the arguments of all processes of an attack.
#[derive(Debug)]
pub struct Marker(String);

impl Marker {
    /// A marker that no other process has.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("marked-{}-{number}-", std::process::id()))
    }

    /// The word.
    pub fn word(&self) -> &str {
        &self.0
    }

    /// The pids of live processes with this marker, whatever their parent is.
    pub fn bearers(&self) -> Vec<i32> {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| self.is_borne_by(*pid)).collect()
    }

    /// Whether `pid` has this marker. A dead process has no arguments.
    fn is_borne_by(&self, pid: i32) -> bool {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.windows(self.0.len()).any(|window| window == self.0.as_bytes())
    }

    /// Panics unless all of them die in time.
    #[track_caller]
    pub fn assert_gone(&self) {
        wait_until("the death of the run's processes", GONE_WITHIN, || self.bearers().is_empty());
    }
}
