//! How fast the lock calls of one sandbox are answered.

use std::time::{Duration, Instant};

/// What answers may cost the supervisor for as long as the sandbox likes: no control group of the
/// sandbox pays for them.
const CALLS_PER_SECOND_MAX: u32 = 50_000;
/// How many calls may come at once after a silence.
const BURST_CALLS_MAX: u32 = 2_000;

/// A bucket of [`BURST_CALLS_MAX`] that fills with [`CALLS_PER_SECOND_MAX`].
#[derive(Debug)]
pub struct CallRateLimit {
    /// When all calls so far will have been earned.
    earned_at: Instant,
}

impl CallRateLimit {
    /// With a full bucket.
    pub fn new(now: Instant) -> Self {
        Self { earned_at: now }
    }

    /// Adds a call; the time for which the next one has to wait.
    pub fn spend(&mut self, now: Instant) -> Duration {
        let call = Duration::from_secs(1) / CALLS_PER_SECOND_MAX;
        self.earned_at = self.earned_at.max(now) + call;
        self.earned_at.saturating_duration_since(now).saturating_sub(call * BURST_CALLS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_beyond_a_burst_come_at_their_rate() {
        let start = Instant::now();
        let mut limit = CallRateLimit::new(start);
        for _ in 0..BURST_CALLS_MAX {
            assert_eq!(limit.spend(start), Duration::ZERO);
        }
        for _ in 1..CALLS_PER_SECOND_MAX {
            limit.spend(start);
        }
        assert_eq!(limit.spend(start), Duration::from_secs(1));
        // A silence earns no more than a burst.
        let later = start + Duration::from_secs(3600);
        (0..BURST_CALLS_MAX).for_each(|_| assert_eq!(limit.spend(later), Duration::ZERO));
        assert!(limit.spend(later) > Duration::ZERO);
    }
}
