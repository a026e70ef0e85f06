//! Limits the rate at which the output of a run without an output limit is streamed.

use tokio::time::{Duration, Instant};

/// The rate. The kernel divides CPU time among sandboxes but does not charge them for what the
/// service does with their output.
pub const STREAMED_BYTES_PER_SECOND_MAX: u32 = 16 << 20;
/// How many bytes may pass at once after a pause, so that small outputs are not delayed.
const BURST_BYTES_MAX: u32 = 1 << 20;

/// A token bucket of [`BURST_BYTES_MAX`] that refills at [`STREAMED_BYTES_PER_SECOND_MAX`].
#[derive(Debug)]
pub struct RateLimit {
    /// When the bucket will be full again.
    earned_at: Instant,
}

impl RateLimit {
    /// Starts with a full bucket.
    pub fn new(now: Instant) -> Self {
        Self { earned_at: now }
    }

    /// Takes `bytes` from the bucket. Returns the time until which no more may pass, if any.
    pub fn spend(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        self.earned_at = self.earned_at.max(now) + time_of(bytes as f64);
        let next = self.earned_at - time_of(f64::from(BURST_BYTES_MAX));
        (next > now).then_some(next)
    }
}

fn time_of(bytes: f64) -> Duration {
    Duration::from_secs_f64(bytes / f64::from(STREAMED_BYTES_PER_SECOND_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let start = Instant::now();
        let mut pace = RateLimit::new(start);
        assert_eq!(pace.spend(MIB, start), None);
        assert_eq!(pace.spend(16 * MIB, start), Some(start + Duration::from_secs(1)));
        let later = start + Duration::from_secs(1);
        assert_eq!(pace.spend(8 * MIB, later), Some(later + Duration::from_millis(500)));
    }

    #[test]
    fn a_pause_refills_only_one_burst() {
        let start = Instant::now();
        let mut pace = RateLimit::new(start);
        let later = start + Duration::from_secs(3600);
        assert_eq!(pace.spend(MIB, later), None);
        assert_eq!(pace.spend(16 * MIB, later), Some(later + Duration::from_secs(1)));
    }
}
