//! Bounded admission: a fixed number of numbered permits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::values::deadline::Deadline;

/// A fixed set of permits, numbered `0..capacity`.
///
/// The lowest free number is given first, so that what belongs to a number (a host uid) stays warm.
#[derive(Debug)]
pub struct Permits {
    taken: Mutex<Vec<bool>>,
    freed: Condvar,
}

impl Permits {
    /// Creates `capacity` free permits.
    pub fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::new(vec![false; capacity]), freed: Condvar::new() })
    }

    /// Takes a permit without waiting, or returns `None` if all are taken.
    pub fn try_enter(self: &Arc<Self>) -> Option<Permit> {
        let mut taken = self.lock();
        let index = taken.iter().position(|taken| !taken)?;
        *taken.get_mut(index)? = true;
        Some(Permit { permits: Arc::clone(self), index })
    }

    /// The number of permits that are taken.
    pub fn taken(&self) -> usize {
        self.lock().iter().filter(|taken| **taken).count()
    }

    /// Waits until all permits are free. Returns false if the deadline passes first.
    pub fn wait_idle(&self, deadline: Deadline) -> bool {
        let mut taken = self.lock();
        while taken.iter().any(|taken| *taken) {
            let left = deadline.remaining();
            if left.is_zero() {
                return false;
            }
            let waited = self.freed.wait_timeout(taken, left);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Vec<bool>> {
        // A panic while the lock is held cannot leave a Vec<bool> half-written.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to run one job. Dropping it frees the permit.
#[derive(Debug)]
pub struct Permit {
    permits: Arc<Permits>,
    index: usize,
}

impl Permit {
    /// The number of this permit, in `0..capacity`.
    pub fn index(&self) -> usize {
        self.index
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(taken) = self.permits.lock().get_mut(self.index) {
            *taken = false;
        }
        self.permits.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_more_than_capacity_enter_and_a_freed_permit_is_reused() {
        let permits = Permits::new(2);
        let first = permits.try_enter().unwrap();
        let second = permits.try_enter().unwrap();
        assert_eq!((first.index(), second.index()), (0, 1));
        assert!(permits.try_enter().is_none());
        assert_eq!(permits.taken(), 2);
        drop(first);
        assert_eq!(permits.taken(), 1);
        assert_eq!(permits.try_enter().unwrap().index(), 0);
    }

    #[test]
    fn waiting_for_idle_ends_with_the_last_guard_or_the_deadline() {
        let permits = Permits::new(1);
        let guard = permits.try_enter().unwrap();
        assert!(!permits.wait_idle(Deadline::after(Duration::from_millis(10))));
        let waiter = std::thread::spawn({
            let permits = Arc::clone(&permits);
            move || permits.wait_idle(Deadline::after(Duration::from_secs(10)))
        });
        drop(guard);
        assert!(waiter.join().unwrap());
        assert!(permits.try_enter().is_some());
    }
}
