//! Limits the rate of answers to the lock calls of one sandbox.

use std::time::{Duration, Instant};

/// Bounds what the answers cost the supervisor: no cgroup of the sandbox pays for them.
const CALLS_PER_SECOND_MAX: u32 = 50_000;
/// The number of calls that may come at once after a pause.
const BURST_CALLS_MAX: u32 = 2_000;

/// A token bucket of [`BURST_CALLS_MAX`] that fills with [`CALLS_PER_SECOND_MAX`].
#[derive(Debug)]
pub struct CallRateLimit {
    /// The time at which the rate masked all calls so far.
    earned_at: Instant,
}

impl CallRateLimit {
    /// Starts with a full bucket.
    pub fn new(now: Instant) -> Self {
        Self { earned_at: now }
    }

    /// Counts a call. Returns how long the next call must wait.
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
        // A pause fills the bucket once, not more.
        let later = start + Duration::from_secs(3600);
        (0..BURST_CALLS_MAX).for_each(|_| assert_eq!(limit.spend(later), Duration::ZERO));
        assert!(limit.spend(later) > Duration::ZERO);
    }
}
