//! Figures that are counted where things happen and read by whoever exposes them: no lock, no
//! allocation, and nothing that another server in the same process would share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A figure that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The upper ends of the buckets of durations, seconds; the last bucket has none.
pub const DURATION_BOUNDS_SECONDS: [f64; 17] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 300.0,
];

/// How long things took: how many fell into each bucket, and all of them together.
#[derive(Debug, Default)]
pub struct Durations {
    buckets: [Counter; DURATION_BOUNDS_SECONDS.len() + 1],
    sum_ns: AtomicU64,
}

/// [`Durations`] at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DurationCounts {
    /// The upper end of each bucket in seconds and what fell into it alone; the last is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// All of them together, seconds.
    pub sum_seconds: f64,
}

impl Durations {
    /// Counts one that took so long.
    pub fn count(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let below = DURATION_BOUNDS_SECONDS.iter().position(|bound| seconds <= *bound);
        if let Some(bucket) = self.buckets.get(below.unwrap_or(DURATION_BOUNDS_SECONDS.len())) {
            bucket.increment();
        }
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn read(&self) -> DurationCounts {
        let bounds = DURATION_BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
        DurationCounts {
            buckets: bounds.zip(self.buckets.iter().map(Counter::get)).collect(),
            sum_seconds: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)).as_secs_f64(),
        }
    }
}

impl DurationCounts {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let durations = Durations::default();
        for (millis, bound) in
            [(0, 0.0005), (1, 0.001), (2, 0.0025), (300_000, 300.0), (300_001, f64::INFINITY)]
        {
            let before = durations.read();
            durations.count(Duration::from_millis(millis));
            let after = durations.read();
            let grown: Vec<f64> = before
                .buckets
                .iter()
                .zip(&after.buckets)
                .filter(|((_, before), (_, after))| before != after)
                .map(|((bound, _), _)| *bound)
                .collect();
            assert_eq!(grown, [bound], "{millis} ms");
            assert_eq!(after.count(), before.count() + 1);
        }
        assert!((durations.read().sum_seconds - 600.004).abs() < 1e-9);
    }
}
