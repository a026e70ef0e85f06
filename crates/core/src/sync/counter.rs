//! Counters and histograms without locks or allocation. They belong to one server, so several
//! servers in a process do not share them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The upper bounds of the histogram buckets, seconds. The last bucket is unbounded.
pub const DURATION_BOUNDS_SECONDS: [f64; 17] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 300.0,
];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Durations {
    buckets: [Counter; DURATION_BOUNDS_SECONDS.len() + 1],
    sum_ns: AtomicU64,
}

/// The values of [`Durations`] at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DurationCounts {
    /// The upper bound of each bucket in seconds, and the count of that bucket alone (not
    /// cumulative). The last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all durations, seconds.
    pub sum_seconds: f64,
}

impl Durations {
    /// Adds one duration.
    pub fn count(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let below = DURATION_BOUNDS_SECONDS.iter().position(|bound| seconds <= *bound);
        if let Some(bucket) = self.buckets.get(below.unwrap_or(DURATION_BOUNDS_SECONDS.len())) {
            bucket.increment();
        }
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Returns the current values.
    pub fn read(&self) -> DurationCounts {
        let bounds = DURATION_BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
        DurationCounts {
            buckets: bounds.zip(self.buckets.iter().map(Counter::get)).collect(),
            sum_seconds: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)).as_secs_f64(),
        }
    }
}

impl DurationCounts {
    /// The number of durations.
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
