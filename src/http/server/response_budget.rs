//! Answers whose clients do not read them, and how much memory all of them may hold.
//!
//! A run's slot is free before its answer is read, so that a client could
//! have one answer made after the other and read none. Each would lie here
//! until its deadline; where they hold too much together, the one that has
//! waited longest is given up before.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::connection_state::{Exchange, WeakExchange};

/// The answers of all connections that are not with the kernel yet.
#[derive(Clone)]
pub struct UnreadAnswers(Arc<Inner>);

struct Inner {
    bytes_max: u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    bytes: u64,
    answers: BTreeMap<u64, (u64, WeakExchange)>,
    next: u64,
}

impl Held {
    fn remove(&mut self, number: u64) {
        if let Some((bytes, _)) = self.answers.remove(&number) {
            self.bytes -= bytes;
        }
    }
}

/// One answer; dropping it counts it out.
pub struct UnreadAnswer {
    all: UnreadAnswers,
    number: u64,
}

impl fmt::Debug for UnreadAnswer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("UnreadAnswer").field("number", &self.number).finish_non_exhaustive()
    }
}

impl UnreadAnswers {
    /// Answers that may hold so many bytes together, as long as there is more than one.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Inner { bytes_max, held: Mutex::default() }))
    }

    /// Counts in an answer of so many bytes on the connection of `exchange`.
    pub fn enter(&self, bytes: u64, exchange: &Exchange) -> UnreadAnswer {
        let number = {
            let mut held = self.lock();
            held.bytes = held.bytes.saturating_add(bytes);
            held.next += 1;
            let number = held.next;
            held.answers.insert(number, (bytes, exchange.downgrade()));
            number
        };
        self.give_up_some();
        UnreadAnswer { all: self.clone(), number }
    }

    /// Gives up answers until the rest may stay: those first whose clients
    /// have not read for the longest. Who reads is never given up.
    fn give_up_some(&self) {
        while let Some(candidates) = self.candidates() {
            // Out of the lock: a connection that ends just now may count its answer out here.
            let waiting = candidates.into_iter().filter_map(|(number, exchange)| {
                let exchange = exchange.upgrade()?;
                Some((exchange.blocked_since()?, number, exchange))
            });
            let Some((_, number, exchange)) = waiting.min_by_key(|(since, ..)| *since) else {
                return;
            };
            self.lock().remove(number);
            exchange.give_up();
        }
    }

    /// Every answer, where they hold too much.
    fn candidates(&self) -> Option<Vec<(u64, WeakExchange)>> {
        let held = self.lock();
        let too_much = held.bytes > self.0.bytes_max && held.answers.len() > 1;
        let copy =
            |(number, (_, exchange)): (&u64, &(u64, WeakExchange))| (*number, exchange.clone());
        too_much.then(|| held.answers.iter().map(copy).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // No change of it panics half-way.
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnreadAnswer {
    /// All answers, to give some up now that this one's client does not read.
    pub fn stalled(&self) -> impl FnOnce() + use<> {
        let all = self.all.clone();
        move || all.give_up_some()
    }
}

impl Drop for UnreadAnswer {
    fn drop(&mut self) {
        self.all.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::{Duration, Instant};

    use super::*;

    fn answering(all: &UnreadAnswers, bytes: u64) -> Exchange {
        let exchange = Exchange::new(Instant::now());
        exchange.answer_held(all.enter(bytes, &exchange));
        exchange
    }

    fn given_up(exchanges: &[&Exchange]) -> Vec<bool> {
        exchanges.iter().map(|exchange| exchange.is_given_up(Waker::noop())).collect()
    }

    #[test]
    fn the_longest_unread_goes_first_and_who_reads_stays() {
        let all = UnreadAnswers::new(100);
        let start = Instant::now();
        let [reading, newer, older] = [(); 3].map(|()| answering(&all, 30));
        newer.blocked(start + Duration::from_secs(2));
        older.blocked(start + Duration::from_secs(1));
        assert_eq!(given_up(&[&reading, &newer, &older]), [false, false, false], "90 are not 101");
        let last = answering(&all, 30);
        assert_eq!(given_up(&[&reading, &newer, &older, &last]), [false, false, true, false]);
        let large = answering(&all, 1000);
        assert_eq!(given_up(&[&reading, &newer, &last, &large]), [false, true, false, false]);
        // Nobody else was waiting then; now somebody is.
        last.blocked(start + Duration::from_secs(3));
        assert_eq!(given_up(&[&reading, &last, &large]), [false, true, false]);
    }

    #[test]
    fn one_answer_alone_may_be_of_any_size_and_an_ended_one_counts_no_more() {
        let all = UnreadAnswers::new(100);
        drop(answering(&all, 90));
        let alone = answering(&all, 1000);
        alone.blocked(Instant::now());
        assert_eq!(given_up(&[&alone]), [false]);
        drop(alone);
        let held = all.lock();
        assert_eq!((held.bytes, held.answers.len()), (0, 0));
    }
}
