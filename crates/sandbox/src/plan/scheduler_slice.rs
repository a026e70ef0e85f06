//! How soon the kernel lets us have our turn on a busy CPU.

use std::io;

use crate::sys;

/// The shortest slice the kernel gives, nanoseconds.
pub const SHORT_NS: u64 = 100_000;
/// Longer than any slice of the kernel's own, which are 2.8 ms at most, nanoseconds: who has
/// shorter ones need not wait for the end of these.
pub const LONG_NS: u64 = 5_000_000;

/// Asks for the next free turn whenever this thread wakes, and for all it
/// starts from now on: a run is a dozen wake-ups, and each would wait for the
/// end of somebody's slice, which may be the next tick. Nobody gets more of a
/// CPU by it. Linux before 6.12 takes no notice, and runs beside busy ones start later.
pub fn request_short_slices() {
    let ask = || -> io::Result<()> {
        let mut attr = sys::scheduling()?;
        // Where the operator chose another policy, that is the operator's to know.
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

/// Whether this thread has the short turns that it asked for.
pub fn has_short_slice() -> bool {
    sys::scheduling().is_ok_and(|attr| is_ordinary(&attr) && attr.sched_runtime == SHORT_NS)
}

fn is_ordinary(attr: &libc::sched_attr) -> bool {
    attr.sched_policy == libc::SCHED_OTHER.unsigned_abs()
}
