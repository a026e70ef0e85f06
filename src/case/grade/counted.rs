//! How many tests passed and failed.

use std::iter::Sum;

/// The most digits of a count. A longer number is none.
const DIGITS_MAX: usize = 9;

/// The tests that count. Those that were skipped do not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CountedTests {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed or could not be run.
    pub failed: u64,
}

impl CountedTests {
    /// The counts of a summary that has a total. Failures that exceed the total count all the same.
    pub fn of_total(total: u64, failed: u64, left_out: u64) -> Self {
        Self { passed: total.saturating_sub(failed.saturating_add(left_out)), failed }
    }

    /// All tests.
    pub fn total(self) -> u64 {
        self.passed.saturating_add(self.failed)
    }

    /// The fraction that passed; 0 if there are no tests.
    #[expect(clippy::cast_precision_loss, reason = "counts have at most 9 digits each")]
    pub fn fraction(self) -> f64 {
        match self.total() {
            0 => 0.0,
            total => self.passed as f64 / total as f64,
        }
    }
}

impl Sum for CountedTests {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, counts| Self {
            passed: sum.passed.saturating_add(counts.passed),
            failed: sum.failed.saturating_add(counts.failed),
        })
    }
}

/// The count that `text` is.
pub(super) fn count(text: &str) -> Option<u64> {
    let is_number = text.len() <= DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}
