//! Bounded admission: a fixed number of numbered slots, each held by a guard.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::values::deadline::Deadline;

/// A fixed set of slots, `0..capacity`. Lowest free number first, so that what
/// belongs to a slot (a host uid) stays warm.
#[derive(Debug)]
pub struct Permits {
    taken: Mutex<Vec<bool>>,
    freed: Condvar,
}

impl Permits {
    /// `capacity` free slots.
    pub fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::new(vec![false; capacity]), freed: Condvar::new() })
    }

    /// A slot at once, or nothing when all are taken.
    pub fn try_enter(self: &Arc<Self>) -> Option<Permit> {
        let mut taken = self.lock();
        let index = taken.iter().position(|slot| !slot)?;
        *taken.get_mut(index)? = true;
        Some(Permit { slots: Arc::clone(self), index })
    }

    /// How many slots are taken.
    pub fn taken(&self) -> usize {
        self.lock().iter().filter(|slot| **slot).count()
    }

    /// Waits until every slot is free; false when the deadline came first.
    pub fn wait_idle(&self, deadline: Deadline) -> bool {
        let mut taken = self.lock();
        while taken.iter().any(|slot| *slot) {
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

/// The right to run one job; dropping it frees the slot.
#[derive(Debug)]
pub struct Permit {
    slots: Arc<Permits>,
    index: usize,
}

impl Permit {
    /// Which slot this is, `0..capacity`.
    pub fn index(&self) -> usize {
        self.index
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(slot) = self.slots.lock().get_mut(self.index) {
            *slot = false;
        }
        self.slots.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_more_than_capacity_enter_and_a_freed_slot_is_reused() {
        let slots = Permits::new(2);
        let first = slots.try_enter().unwrap();
        let second = slots.try_enter().unwrap();
        assert_eq!((first.index(), second.index()), (0, 1));
        assert!(slots.try_enter().is_none());
        assert_eq!(slots.taken(), 2);
        drop(first);
        assert_eq!(slots.taken(), 1);
        assert_eq!(slots.try_enter().unwrap().index(), 0);
    }

    #[test]
    fn waiting_for_idle_ends_with_the_last_guard_or_the_deadline() {
        let slots = Permits::new(1);
        let guard = slots.try_enter().unwrap();
        assert!(!slots.wait_idle(Deadline::after(Duration::from_millis(10))));
        let waiter = std::thread::spawn({
            let slots = Arc::clone(&slots);
            move || slots.wait_idle(Deadline::after(Duration::from_secs(10)))
        });
        drop(guard);
        assert!(waiter.join().unwrap());
        assert!(slots.try_enter().is_some());
    }
}
