//! Limits the memory of responses that clients do not read.
//!
//! A run frees its permit before its response is read, so a client could request one response after
//! another and read none. Each would stay until its deadline. If they exceed the budget together,
//! the response that has been unread for the longest time is evicted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// A connection that writes a response.
pub trait ResponseWriter: Send + Sync {
    /// Returns since when the socket has had no room for the response, if it has none.
    fn blocked_since(&self) -> Option<Instant>;
    /// Closes the connection before the response is written.
    fn evict(&self);
}

/// The memory shared by all responses that the kernel does not have yet.
#[derive(Clone)]
pub struct ResponseBudget(Arc<SharedResponses>);

struct SharedResponses {
    bytes_max: u64,
    held: Mutex<ResponseTable>,
}

#[derive(Default)]
struct ResponseTable {
    bytes: u64,
    answers: BTreeMap<u64, (u64, Weak<dyn ResponseWriter>)>,
    next: u64,
}

impl ResponseTable {
    fn remove(&mut self, number: u64) {
        if let Some((bytes, _)) = self.answers.remove(&number) {
            self.bytes -= bytes;
        }
    }
}

/// The memory of one response. Dropping it frees the memory.
pub struct ResponseReservation {
    all: ResponseBudget,
    number: u64,
}

impl fmt::Debug for ResponseReservation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ResponseReservation")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl ResponseBudget {
    /// Allows `bytes_max` bytes for all responses. A single response may have any size.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(SharedResponses { bytes_max, held: Mutex::default() }))
    }

    /// Adds a response of `bytes` bytes that `writer` writes.
    pub fn enter(&self, bytes: u64, writer: Weak<dyn ResponseWriter>) -> ResponseReservation {
        let number = {
            let mut held = self.lock();
            held.bytes = held.bytes.saturating_add(bytes);
            held.next += 1;
            let number = held.next;
            held.answers.insert(number, (bytes, writer));
            number
        };
        self.evict_some();
        ResponseReservation { all: self.clone(), number }
    }

    /// Evicts responses until the rest fit, those unread for the longest time first. A response
    /// that is being read is never evicted.
    fn evict_some(&self) {
        while let Some(candidates) = self.candidates() {
            // Without the lock: a connection that ends now may free its memory here.
            let waiting = candidates.into_iter().filter_map(|(number, writer)| {
                let writer = writer.upgrade()?;
                Some((writer.blocked_since()?, number, writer))
            });
            let Some((_, number, writer)) = waiting.min_by_key(|(since, ..)| *since) else {
                return;
            };
            self.lock().remove(number);
            writer.evict();
        }
    }

    /// Returns all responses if they exceed the budget.
    fn candidates(&self) -> Option<Vec<(u64, Weak<dyn ResponseWriter>)>> {
        let held = self.lock();
        let too_much = held.bytes > self.0.bytes_max && held.answers.len() > 1;
        too_much.then(|| {
            let writers =
                held.answers.iter().map(|(number, (_, writer))| (*number, writer.clone()));
            writers.collect()
        })
    }

    fn lock(&self) -> MutexGuard<'_, ResponseTable> {
        // No update panics halfway.
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResponseReservation {
    /// Returns a closure that enforces the budget after this response's client has stopped reading.
    pub fn stalled(&self) -> impl FnOnce() + use<> {
        let all = self.all.clone();
        move || all.evict_some()
    }
}

impl Drop for ResponseReservation {
    fn drop(&mut self) {
        self.all.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::super::connection_state::ConnectionState;
    use super::*;

    fn answering(all: &ResponseBudget, bytes: u64) -> ConnectionState {
        let state = ConnectionState::new(Instant::now());
        state.answer_held(all.enter(bytes, state.writer()));
        state
    }

    fn evicted(states: &[&ConnectionState]) -> Vec<bool> {
        states.iter().map(|state| state.is_evicted(Waker::noop())).collect()
    }

    #[test]
    fn the_longest_unread_response_is_evicted_first_and_readers_stay() {
        let all = ResponseBudget::new(100);
        let start = Instant::now();
        let [reading, newer, older] = [(); 3].map(|()| answering(&all, 30));
        newer.blocked(start + Duration::from_secs(2));
        older.blocked(start + Duration::from_secs(1));
        assert_eq!(evicted(&[&reading, &newer, &older]), [false, false, false], "90 are not 101");
        let last = answering(&all, 30);
        assert_eq!(evicted(&[&reading, &newer, &older, &last]), [false, false, true, false]);
        let large = answering(&all, 1000);
        assert_eq!(evicted(&[&reading, &newer, &last, &large]), [false, true, false, false]);
        // When `large` was added no other response was blocked; now one is.
        last.blocked(start + Duration::from_secs(3));
        assert_eq!(evicted(&[&reading, &last, &large]), [false, true, false]);
    }

    #[test]
    fn a_single_response_may_have_any_size_and_a_finished_one_is_not_counted() {
        let all = ResponseBudget::new(100);
        drop(answering(&all, 90));
        let alone = answering(&all, 1000);
        alone.blocked(Instant::now());
        assert_eq!(evicted(&[&alone]), [false]);
        drop(alone);
        let held = all.lock();
        assert_eq!((held.bytes, held.answers.len()), (0, 0));
    }
}
