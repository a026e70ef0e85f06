//! Memory of a burst goes back to the kernel when the burst is over.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};

use cofferdam_sandbox::return_free_pages;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A change of resident memory that is worth the work, bytes.
const CHANGE_BYTES: u64 = 8 << 20;
/// What is no change from one look to the next, bytes.
const STEADY_BYTES: u64 = 1 << 20;

/// Looks at the memory of this process for as long as it lives.
pub fn return_after_bursts() -> io::Result<()> {
    let thread = thread::Builder::new().name("memory".to_owned());
    thread.spawn(|| {
        let mut watched = Watched::default();
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
struct Watched {
    /// At the last look.
    last: u64,
    /// After free pages went back for the last time.
    returned: u64,
}

impl Watched {
    /// Whether it is another than after the last return, up or down, and has come to rest.
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
    fn a_burst_is_over_when_its_memory_has_come_to_rest() {
        const MIB: u64 = 1 << 20;
        let mut watched = Watched { last: 10 * MIB, returned: 10 * MIB };
        assert!(!watched.is_burst_over(12 * MIB), "little has changed");
        assert!(!watched.is_burst_over(60 * MIB), "it rises");
        assert!(watched.is_burst_over(60 * MIB));
        watched.returned = 58 * MIB;
        assert!(!watched.is_burst_over(58 * MIB), "what is left is in use");
        assert!(!watched.is_burst_over(30 * MIB), "it falls");
        assert!(watched.is_burst_over(30 * MIB), "what was in use is free in part");
    }

    #[test]
    fn this_process_has_some_memory() {
        assert!(resident_bytes() > Some(1 << 20));
    }
}
