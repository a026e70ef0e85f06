//! Decides whether a sandbox may take another lock. Pure: the caller passes the time.

use std::time::{Duration, Instant};

/// The most locks of a sandbox, uncounted ones included. Compilers, package managers and databases
/// hold far fewer: a few for each open database, package or file.
pub const LOCKS_MAX: usize = 1024;
/// A sandbox that holds this many locks at a count gets no more, so that each count allows enough
/// calls to be worth its cost.
const HELD_MAX: usize = LOCKS_MAX / 2;
/// How long locks are refused before the next count.
const REFUSED_FOR: Duration = Duration::from_millis(100);
/// After a count, no count follows for this many times its duration.
const REST_PER_COUNT: u32 = 9;

/// A call that may take locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockCall {
    /// `flock`: at most one lock per open file description.
    Flock,
    /// `fcntl`: a lock in the middle of another one splits it in two and takes its place.
    Record,
}

impl LockCall {
    /// The most locks that the call can add.
    fn adds_max(self) -> usize {
        match self {
            Self::Flock => 1,
            Self::Record => 2,
        }
    }
}

/// The decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockDecision {
    /// The kernel executes it.
    Continue,
    /// It fails with `ENOLCK`.
    Refuse,
    /// The locks must be counted first, at this time or later.
    Count(Instant),
}

/// The locks of one sandbox: the last count, plus the locks that may have been taken since.
#[derive(Debug)]
pub struct LockBudget {
    locks: usize,
    refused_until: Option<Instant>,
    next_count: Instant,
}

impl LockBudget {
    /// For a sandbox without locks.
    pub fn new(now: Instant) -> Self {
        Self { locks: 0, refused_until: None, next_count: now }
    }

    /// Decides about `call`.
    pub fn ask(&mut self, call: LockCall, now: Instant) -> LockDecision {
        if self.refused_until.is_some_and(|until| now < until) {
            return LockDecision::Refuse;
        }
        let with_call = self.locks + call.adds_max();
        if self.refused_until.is_none() && with_call <= LOCKS_MAX {
            self.locks = with_call;
            return LockDecision::Continue;
        }
        LockDecision::Count(self.next_count)
    }

    /// Records a count and its duration. `None` if the locks could not be counted.
    pub fn counted(&mut self, held: Option<usize>, began: Instant, ended: Instant) {
        let rest = ended.saturating_duration_since(began) * REST_PER_COUNT;
        self.next_count = ended + rest;
        match held {
            Some(held) if held < HELD_MAX => {
                self.locks = held;
                self.refused_until = None;
            }
            _ => self.refused_until = Some(ended + rest.max(REFUSED_FOR)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn granted(budget: &mut LockBudget, call: LockCall, now: Instant) -> usize {
        (0..2 * LOCKS_MAX).take_while(|_| budget.ask(call, now) == LockDecision::Continue).count()
    }

    #[test]
    fn uncounted_calls_can_take_at_most_all_locks() {
        let now = Instant::now();
        assert_eq!(granted(&mut LockBudget::new(now), LockCall::Flock, now), LOCKS_MAX);
        let mut budget = LockBudget::new(now);
        assert_eq!(granted(&mut budget, LockCall::Record, now), LOCKS_MAX / 2);
        assert_eq!(budget.ask(LockCall::Record, now), LockDecision::Count(now));
        // Locks still held reduce the number of calls allowed.
        budget.counted(Some(100), now, now);
        assert_eq!(granted(&mut budget, LockCall::Flock, now), LOCKS_MAX - 100);
    }

    #[test]
    fn a_sandbox_that_holds_many_or_cannot_be_counted_is_refused_until_the_next_count() {
        let now = Instant::now();
        for held in [None, Some(HELD_MAX), Some(usize::MAX)] {
            let mut budget = LockBudget::new(now);
            granted(&mut budget, LockCall::Flock, now);
            budget.counted(held, now, now + MS);
            assert_eq!(budget.ask(LockCall::Flock, now + 100 * MS), LockDecision::Refuse);
            // No call continues between the refusals and the count.
            let count = LockDecision::Count(now + 10 * MS);
            assert_eq!(budget.ask(LockCall::Flock, now + 101 * MS), count);
            budget.counted(Some(3), now + 101 * MS, now + 102 * MS);
            assert_eq!(budget.ask(LockCall::Flock, now + 102 * MS), LockDecision::Continue);
        }
    }

    #[test]
    fn a_long_count_is_followed_by_a_long_pause() {
        let now = Instant::now();
        let mut budget = LockBudget::new(now);
        budget.counted(None, now, now + 40 * MS);
        assert_eq!(budget.ask(LockCall::Flock, now + 399 * MS), LockDecision::Refuse);
        assert_eq!(
            budget.ask(LockCall::Flock, now + 400 * MS),
            LockDecision::Count(now + 400 * MS)
        );
    }
}
