//! Wakes the reaper when a workspace is over earlier than it thinks.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// When the reaper looks again.
#[derive(Debug, Default)]
pub struct ReaperBell {
    state: Mutex<BellState>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct BellState {
    /// When the reaper wakes by itself; never if nothing is to come.
    wakes_at: Option<Instant>,
    is_rung: bool,
    is_closed: bool,
}

impl ReaperBell {
    /// Says that something is to be done at `time`. Wakes the reaper if it would wake later.
    pub fn expect(&self, time: Instant) {
        let mut state = self.lock();
        if state.wakes_at.is_none_or(|wakes_at| time < wakes_at) {
            state.is_rung = true;
            self.rung.notify_all();
        }
    }

    /// Ends the wait for good.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.rung.notify_all();
    }

    /// Waits until `time`, or until an earlier time is expected. Returns false once it is closed.
    pub fn wait_until(&self, time: Option<Instant>) -> bool {
        let mut state = self.lock();
        state.wakes_at = time;
        while !state.is_rung && !state.is_closed {
            state = match time.map(|time| time.saturating_duration_since(Instant::now())) {
                None => self.rung.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => break,
                Some(left) => {
                    let waited = self.rung.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.is_rung = false;
        // Until the next wait, the reaper looks at everything anyway.
        state.wakes_at = None;
        !state.is_closed
    }

    fn lock(&self) -> MutexGuard<'_, BellState> {
        // Each field is consistent by itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_wait_ends_at_its_time_or_with_an_earlier_one_or_with_the_close() {
        let bell = ReaperBell::default();
        assert!(bell.wait_until(Some(Instant::now())));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| bell.wait_until(Some(Instant::now() + LONG)));
            bell.expect(Instant::now());
            assert!(waiter.join().unwrap());
            let waiter = scope.spawn(|| bell.wait_until(None));
            bell.close();
            assert!(!waiter.join().unwrap());
        });
    }

    #[test]
    fn a_later_time_does_not_end_a_wait() {
        let bell = ReaperBell::default();
        let soon = Instant::now() + Duration::from_millis(30);
        bell.lock().wakes_at = Some(soon);
        bell.expect(soon + LONG);
        assert!(!bell.lock().is_rung);
        bell.expect(soon - Duration::from_millis(1));
        assert!(bell.lock().is_rung);
    }
}
