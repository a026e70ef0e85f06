//! The scheduler slice of this process's threads: how soon they run on a busy CPU.

use std::io;

use crate::sys;

/// The shortest slice the kernel gives, nanoseconds.
pub const SHORT_NS: u64 = 100_000;
/// Longer than the kernel's default slices, which are 2.8 ms at most, nanoseconds: threads with
/// shorter ones need not wait until these end.
pub const LONG_NS: u64 = 5_000_000;

/// Requests the shortest slice for this thread and the threads and processes it starts, so that they
/// run as soon as they wake up. A run wakes up about a dozen times, and each time would otherwise
/// wait for the end of another slice, which may be the next tick. The share of a CPU stays the same.
/// Linux before 6.12 ignores the slice, and runs on a busy host start later.
pub fn request_short_slices() {
    let ask = || -> io::Result<()> {
        let mut attr = sys::scheduling()?;
        // The operator may have chosen another policy: keep it.
        if is_ordinary(&attr) {
            attr.sched_runtime = SHORT_NS;
            sys::set_scheduling(&attr)?;
        }
        Ok(())
    };
    if let Err(error) = ask() {
        log::debug!("time slice: {error}");
    }
}

/// Whether this thread has the short slice that it requested.
pub fn has_short_slice() -> bool {
    sys::scheduling().is_ok_and(|attr| is_ordinary(&attr) && attr.sched_runtime == SHORT_NS)
}

fn is_ordinary(attr: &libc::sched_attr) -> bool {
    attr.sched_policy == libc::SCHED_OTHER.unsigned_abs()
}
