//! Workspaces whose layers may be merged, until the merger looks at them.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the merger waits before it looks: a workspace that is used again soon need not be merged in
/// between.
const PAUSE: Duration = Duration::from_millis(100);

/// Workspaces to look at, by their numbers.
#[derive(Debug, Default)]
pub struct MergeQueue {
    state: Mutex<QueueState>,
    offered: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    numbers: BTreeSet<u64>,
    /// Layers were released, which any workspace may have shared.
    is_any: bool,
    is_closed: bool,
}

/// What the merger looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOffer {
    /// All workspaces.
    Any,
    /// Those with these numbers.
    Some(BTreeSet<u64>),
}

/// Held by whatever holds layers, and dropped after them: others may then be the last that need them.
#[derive(Debug)]
pub struct LayerRelease(pub Arc<MergeQueue>);

impl Drop for LayerRelease {
    fn drop(&mut self) {
        self.0.lock().is_any = true;
        self.0.offered.notify_all();
    }
}

impl MergeQueue {
    /// Lets the merger look at the workspace with that number.
    pub fn offer(&self, number: u64) {
        self.lock().numbers.insert(number);
        self.offered.notify_all();
    }

    /// Ends the wait for good.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.offered.notify_all();
    }

    /// Waits for offers, and a little longer. None once it is closed.
    pub fn wait(&self) -> Option<MergeOffer> {
        let waits =
            |state: &mut QueueState| !state.is_closed && !state.is_any && state.numbers.is_empty();
        let state = self.offered.wait_while(self.lock(), waits);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let is_open = |state: &mut QueueState| !state.is_closed;
        let waited = self.offered.wait_timeout_while(state, PAUSE, is_open);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let numbers = std::mem::take(&mut state.numbers);
        let is_any = std::mem::take(&mut state.is_any);
        match (state.is_closed, is_any) {
            (true, _) => None,
            (false, true) => Some(MergeOffer::Any),
            (false, false) => Some(MergeOffer::Some(numbers)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Each field is consistent by itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_taken_together_and_a_release_concerns_all() {
        let queue = Arc::new(MergeQueue::default());
        queue.offer(1);
        queue.offer(2);
        queue.offer(1);
        assert_eq!(queue.wait(), Some(MergeOffer::Some(BTreeSet::from([1, 2]))));
        queue.offer(1);
        drop(LayerRelease(Arc::clone(&queue)));
        assert_eq!(queue.wait(), Some(MergeOffer::Any));
        queue.offer(3);
        queue.close();
        assert_eq!(queue.wait(), None);
    }
}
