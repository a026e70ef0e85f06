//! Returns free memory to the kernel after a burst of requests.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};

use cofferdam_sandbox::engine::return_free_pages;

/// The interval between two measurements.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The change of resident memory that makes a return worthwhile, bytes.
const CHANGE_BYTES: u64 = 8 << 20;
/// A smaller difference between two measurements counts as no change, bytes.
const STEADY_BYTES: u64 = 1 << 20;

/// Watches the memory of this process, on a thread that never ends.
pub fn return_after_bursts() -> io::Result<()> {
    let thread = thread::Builder::new().name("memory".to_owned());
    thread.spawn(|| {
        let mut watched = ResidentMemory::default();
        loop {
            if resident_bytes().is_some_and(|now| watched.is_burst_over(now)) {
                return_free_pages();
                watched.returned = resident_bytes().unwrap_or_default();
            }
            thread::sleep(LOOK_EVERY);
        }
    })?;
    Ok(())
}

/// Resident memory, bytes.
#[derive(Debug, Default)]
struct ResidentMemory {
    /// At the last measurement.
    last: u64,
    /// After free pages were last returned.
    returned: u64,
}

impl ResidentMemory {
    /// Whether memory has changed since the last return, up or down, and is now steady.
    fn is_burst_over(&mut self, now: u64) -> bool {
        let is_steady = now.abs_diff(self.last) <= STEADY_BYTES;
        self.last = now;
        is_steady && now.abs_diff(self.returned) >= CHANGE_BYTES
    }
}

fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    let page_bytes = u64::try_from(sysconf(SysconfVar::PAGE_SIZE).ok()??).ok()?;
    pages.checked_mul(page_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_over_when_memory_is_steady_again() {
        const MIB: u64 = 1 << 20;
        let mut watched = ResidentMemory { last: 10 * MIB, returned: 10 * MIB };
        assert!(!watched.is_burst_over(12 * MIB), "little has changed");
        assert!(!watched.is_burst_over(60 * MIB), "memory rises");
        assert!(watched.is_burst_over(60 * MIB));
        watched.returned = 58 * MIB;
        assert!(!watched.is_burst_over(58 * MIB), "the remaining memory is in use");
        assert!(!watched.is_burst_over(30 * MIB), "memory falls");
        assert!(watched.is_burst_over(30 * MIB), "part of the used memory is free");
    }

    #[test]
    fn this_process_has_some_memory() {
        assert!(resident_bytes() > Some(1 << 20));
    }
}
