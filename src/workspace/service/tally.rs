//! Counts of things that there may only be so many of, in all and for each token.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::config::TokenName;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};

/// A count with a limit, and a limit for each token.
#[derive(Debug)]
pub struct Tally {
    max: usize,
    max_per_token: Option<usize>,
    counts: Mutex<TallyCounts>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct TallyCounts {
    total: usize,
    by_token: BTreeMap<TokenName, usize>,
}

/// The limit that a [`Tally`] has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TallyFull {
    /// That of all tokens together.
    Total,
    /// That of one token.
    Token,
}

/// One of the counted things. Dropping it counts down.
#[derive(Debug)]
pub struct TallyEntry {
    tally: Arc<Tally>,
    token: TokenName,
}

impl Tally {
    /// Counts up to `max`, and up to `max_per_token` for each token.
    pub fn new(max: usize, max_per_token: Option<usize>) -> Arc<Self> {
        let counts = Mutex::default();
        Arc::new(Self { max, max_per_token, counts, freed: Condvar::new() })
    }

    /// Counts one more for `token`, unless a limit is reached. The token's own is checked first: it
    /// does not go away by itself.
    pub fn enter(self: &Arc<Self>, token: &TokenName) -> Result<TallyEntry, TallyFull> {
        let mut counts = self.lock();
        let of_token = counts.by_token.get(token).copied().unwrap_or_default();
        if self.max_per_token.is_some_and(|max| of_token >= max) {
            return Err(TallyFull::Token);
        }
        if counts.total >= self.max && !weakened::lacks(Wall::Tally) {
            return Err(TallyFull::Total);
        }
        counts.total += 1;
        *counts.by_token.entry(token.clone()).or_default() += 1;
        Ok(TallyEntry { tally: Arc::clone(self), token: token.clone() })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().total
    }

    /// How many there may be.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Waits until there are none. Returns false if the deadline passes first.
    pub fn wait_none(&self, deadline: Deadline) -> bool {
        let mut counts = self.lock();
        while counts.total > 0 {
            let left = deadline.remaining();
            if left.is_zero() {
                return false;
            }
            let waited = self.freed.wait_timeout(counts, left);
            counts = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, TallyCounts> {
        // Counts change without a point at which a panic could interrupt them.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TallyEntry {
    fn drop(&mut self) {
        let mut counts = self.tally.lock();
        counts.total = counts.total.saturating_sub(1);
        if let Some(of_token) = counts.by_token.get_mut(&self.token) {
            *of_token = of_token.saturating_sub(1);
            if *of_token == 0 {
                counts.by_token.remove(&self.token);
            }
        }
        drop(counts);
        self.tally.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_token_and_all_together_have_a_limit() {
        let tally = Tally::new(3, Some(2));
        let (a, b) = (TokenName::from("a"), TokenName::from("b"));
        let first = tally.enter(&a).unwrap();
        let _second = tally.enter(&a).unwrap();
        assert_eq!(tally.enter(&a).unwrap_err(), TallyFull::Token);
        let _third = tally.enter(&b).unwrap();
        assert_eq!(tally.enter(&b).unwrap_err(), TallyFull::Total);
        assert_eq!(tally.enter(&a).unwrap_err(), TallyFull::Token);
        drop(first);
        assert_eq!(tally.count(), 2);
        let _again = tally.enter(&a).unwrap();
        assert_eq!(tally.count(), 3);
    }

    #[test]
    fn a_token_without_any_is_not_remembered() {
        let tally = Tally::new(1, None);
        drop(tally.enter(&TokenName::from("a")));
        assert!(tally.lock().by_token.is_empty());
        assert!(tally.wait_none(Deadline::after(Duration::ZERO)));
        let _one = tally.enter(&TokenName::from("a"));
        assert!(!tally.wait_none(Deadline::after(Duration::from_millis(5))));
    }
}
