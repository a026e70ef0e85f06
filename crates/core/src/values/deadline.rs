//! A point on the monotonic clock after which a wait ends.

use std::time::{Duration, Instant};

/// A monotonic deadline; a wait asks it how long it may still last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// The deadline `after` from now. Further away than the clock reaches is
    /// brought down to a year, which no run here outlives.
    pub fn after(after: Duration) -> Self {
        Self::at(Instant::now(), after)
    }

    /// The deadline `after` from `start`, capped as in [`Deadline::after`].
    pub fn at(start: Instant, after: Duration) -> Self {
        const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
        Self(start.checked_add(after).unwrap_or(start + YEAR))
    }

    /// The time left; zero once it has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether the deadline has passed.
    pub fn passed(self) -> bool {
        self.remaining().is_zero()
    }
}
