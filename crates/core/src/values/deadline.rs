//! A point on the monotonic clock after which a wait ends.

use std::time::{Duration, Instant};

/// A deadline on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// The deadline `after` from now. A time beyond the clock's range becomes one year, which is
    /// longer than any run.
    pub fn after(after: Duration) -> Self {
        Self::at(Instant::now(), after)
    }

    /// The deadline `after` from `start`, capped as in [`Deadline::after`].
    pub fn at(start: Instant, after: Duration) -> Self {
        const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
        Self(start.checked_add(after).unwrap_or(start + YEAR))
    }

    /// The point on the clock.
    pub fn instant(self) -> Instant {
        self.0
    }

    /// The remaining time; zero once the deadline has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether the deadline has passed.
    pub fn passed(self) -> bool {
        self.remaining().is_zero()
    }
}
