//! Wakes the keeper of a sandbox that lasts, once the response of the program that needs it is sent.
//!
//! What the keeper does between two programs takes a seventh of the time of a short one, often on the same
//! CPU.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// A timer, readable when the keeper is to wake.
#[derive(Debug)]
pub struct KeeperAlarm {
    timer: TimerFd,
    /// When it rings.
    due: Mutex<Option<Instant>>,
}

impl KeeperAlarm {
    /// Rings when it is set.
    ///
    /// # Errors
    /// The kernel refused the timer.
    pub fn new() -> Result<Self, Errno> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Self { timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?, due: Mutex::default() })
    }

    /// Rings within `at_most`: earlier if it is set so already, or was not heard yet.
    pub fn ring_within(&self, at_most: Duration) {
        let mut due = self.due();
        // A time of zero would stop the timer.
        let at_most = at_most.max(Duration::from_nanos(1));
        let at = Instant::now() + at_most;
        if due.is_some_and(|due| due <= at) {
            return;
        }
        let once = Expiration::OneShot(TimeSpec::from_duration(at_most));
        match self.timer.set(once, TimerSetTimeFlags::empty()) {
            Ok(()) => *due = Some(at),
            Err(errno) => log::error!("alarm of a sandbox: {errno}"),
        }
    }

    /// It was heard, and rings no more until it is set.
    pub fn stop(&self) {
        let mut due = self.due();
        *due = None;
        if let Err(errno) = self.timer.unset() {
            log::error!("alarm of a sandbox: {errno}");
        }
    }

    fn due(&self) -> MutexGuard<'_, Option<Instant>> {
        // The one assignment cannot be left half done.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for KeeperAlarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    /// How long until it rings; a whole hour at most.
    fn rings_in(alarm: &KeeperAlarm) -> Option<Duration> {
        let set = alarm.timer.get().unwrap();
        set.map(|expiration| match expiration {
            Expiration::OneShot(left) => Duration::from(left),
            other => panic!("{other:?}"),
        })
    }

    fn is_ringing(alarm: &KeeperAlarm) -> bool {
        let mut fds = [PollFd::new(alarm.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
    }

    #[test]
    fn it_rings_at_the_earliest_of_the_times_until_it_is_heard() {
        let alarm = KeeperAlarm::new().unwrap();
        let [hour, minute] = [3600, 60].map(Duration::from_secs);
        alarm.ring_within(hour);
        assert!(rings_in(&alarm).unwrap() > minute && !is_ringing(&alarm));
        alarm.ring_within(minute);
        assert!(rings_in(&alarm).unwrap() <= minute);
        alarm.ring_within(hour);
        assert!(rings_in(&alarm).unwrap() <= minute, "a later time does not put it off");
        alarm.ring_within(Duration::from_nanos(1));
        let mut fds = [PollFd::new(alarm.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(10_000_u16)), Ok(1));
        alarm.ring_within(Duration::ZERO);
        assert!(is_ringing(&alarm), "it was not heard yet");
        alarm.stop();
        assert!(rings_in(&alarm).is_none() && !is_ringing(&alarm));
        alarm.ring_within(minute);
        assert!(rings_in(&alarm).is_some_and(|left| left > Duration::from_secs(1)));
    }
}
