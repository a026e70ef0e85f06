//! The queue of workspaces that the saver saves or parks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::values::deadline::Deadline;

/// Workspaces to save or park, by their numbers.
#[derive(Debug)]
pub struct SaveQueue {
    /// How long a change waits for others.
    pause: Duration,
    state: Mutex<QueueFields>,
    offered: Condvar,
}

#[derive(Debug, Default)]
struct QueueFields {
    /// When each is saved.
    saves: BTreeMap<u64, Instant>,
    parks: BTreeSet<u64>,
    is_closed: bool,
}

/// What the saver does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveTask {
    /// Save the workspace with that number, if it changed.
    Save(u64),
    /// Park the workspace with that number, if it is over.
    Park(u64),
}

impl SaveQueue {
    /// A queue that saves changes within `save_every`: half of it is left for the save itself.
    pub fn new(save_every: Duration) -> Self {
        Self { pause: save_every / 2, state: Mutex::default(), offered: Condvar::new() }
    }

    /// Lets the saver save a workspace after a pause. One that waits already is saved when it would be.
    pub fn offer(&self, number: u64) {
        let due = Deadline::after(self.pause).instant();
        self.lock().saves.entry(number).or_insert(due);
        self.offered.notify_all();
    }

    /// Lets the saver try again, after two pauses.
    pub fn offer_again(&self, number: u64) {
        let due = Deadline::after(self.pause.saturating_mul(2)).instant();
        self.lock().saves.entry(number).or_insert(due);
    }

    /// Lets the saver park a workspace.
    pub fn offer_park(&self, number: u64) {
        self.lock().parks.insert(number);
        self.offered.notify_all();
    }

    /// Ends the wait for good.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.offered.notify_all();
    }

    /// Waits for a task. None once the queue is closed.
    pub fn wait(&self) -> Option<SaveTask> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(number) = state.parks.pop_first() {
                return Some(SaveTask::Park(number));
            }
            let next = state.saves.iter().min_by_key(|(_, due)| **due);
            let Some((number, due)) = next.map(|(number, due)| (*number, *due)) else {
                state = self.offered.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.saves.remove(&number);
                return Some(SaveTask::Save(number));
            }
            let waited = self.offered.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueFields> {
        // Each field is consistent by itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_saved_together_and_parking_comes_first() {
        let queue = SaveQueue::new(Duration::from_millis(40));
        let began = Instant::now();
        queue.offer(2);
        queue.offer(1);
        queue.offer(2);
        queue.offer_park(3);
        assert_eq!(queue.wait(), Some(SaveTask::Park(3)));
        assert_eq!(queue.wait(), Some(SaveTask::Save(2)));
        assert!(began.elapsed() >= Duration::from_millis(20));
        assert_eq!(queue.wait(), Some(SaveTask::Save(1)));
        queue.offer_again(1);
        queue.close();
        assert_eq!(queue.wait(), None);
    }
}
