//! Counts what has begun and not ended yet, such as requests.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::values::deadline::Deadline;

/// A count that a thread can wait on.
#[derive(Debug, Clone, Default)]
pub struct InFlight(Arc<InFlightCount>);

#[derive(Debug, Default)]
struct InFlightCount {
    count: Mutex<usize>,
    fell: Condvar,
}

/// One of them. Dropping it decrements the count.
#[derive(Debug)]
pub struct InFlightGuard(Arc<InFlightCount>);

impl InFlight {
    /// Increments the count.
    pub fn enter(&self) -> InFlightGuard {
        *self.0.lock() += 1;
        InFlightGuard(Arc::clone(&self.0))
    }

    /// Returns the count.
    pub fn count(&self) -> usize {
        *self.0.lock()
    }

    /// Waits until the count is zero. Returns false if the deadline passes first.
    pub fn wait_none(&self, deadline: Deadline) -> bool {
        let wait =
            self.0.fell.wait_timeout_while(self.0.lock(), deadline.remaining(), |count| *count > 0);
        !wait.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl InFlightCount {
    fn lock(&self) -> MutexGuard<'_, usize> {
        // A count is always consistent.
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.fell.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_wait_ends_with_the_last_one_or_the_deadline() {
        let in_flight = InFlight::default();
        let guard = in_flight.enter();
        assert!(!in_flight.wait_none(Deadline::after(Duration::from_millis(5))));
        let waiter = std::thread::spawn({
            let in_flight = in_flight.clone();
            move || in_flight.wait_none(Deadline::after(Duration::from_secs(10)))
        });
        drop(guard);
        assert!(waiter.join().unwrap());
    }
}
