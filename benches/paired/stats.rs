//! Medians of pairs: two things timed in alternation, so that other load affects both.

use std::thread;
use std::time::{Duration, Instant};

/// More runs than a service needs to see its workspace unchanged and to fill its standby pool.
const WARM_UP_PAIRS: usize = 10;
/// The pause before each timing, so that it does not include cleanup of the one before.
const PAUSE: Duration = Duration::from_millis(5);

/// Pairs of timings of two things.
#[derive(Debug, Default)]
pub struct Pairs(Vec<(f64, f64)>);

impl Pairs {
    /// Takes `count` pairs after a few warm-up pairs. The order alternates from pair to pair.
    pub fn take(
        count: usize,
        mut first: impl FnMut() -> f64,
        mut second: impl FnMut() -> f64,
    ) -> Self {
        let mut pairs = Self::default();
        for pair in 0..WARM_UP_PAIRS + count {
            let paused = |work: &mut dyn FnMut() -> f64| {
                thread::sleep(PAUSE);
                work()
            };
            let both = if pair % 2 == 0 {
                let first = paused(&mut first);
                (first, paused(&mut second))
            } else {
                let second = paused(&mut second);
                (paused(&mut first), second)
            };
            if pair >= WARM_UP_PAIRS {
                pairs.0.push(both);
            }
        }
        pairs
    }

    pub fn push(&mut self, first: f64, second: f64) {
        self.0.push((first, second));
    }

    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The median of the first timings.
    pub fn first(&self) -> f64 {
        median(self.0.iter().map(|(first, _)| *first))
    }

    /// The median of the second timings.
    pub fn second(&self) -> f64 {
        median(self.0.iter().map(|(_, second)| *second))
    }

    /// The spread of the first timings.
    pub fn firsts(&self) -> Spread {
        Spread::of(self.0.iter().map(|(first, _)| *first))
    }

    /// The spread of the ratios.
    pub fn ratio(&self) -> Spread {
        Spread::of(self.0.iter().map(|(first, second)| first / second))
    }

    /// The spread of the differences.
    pub fn difference(&self) -> Spread {
        Spread::of(self.0.iter().map(|(first, second)| first - second))
    }
}

/// The median and the quartiles of many values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub lower_quartile: f64,
    pub median: f64,
    pub upper_quartile: f64,
}

impl Spread {
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let values = sorted(values);
        Self {
            lower_quartile: of_sorted(&values, 0.25),
            median: of_sorted(&values, 0.5),
            upper_quartile: of_sorted(&values, 0.75),
        }
    }
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

/// The quantile at `share`, interpolated between the two nearest values.
pub fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    of_sorted(&sorted(values), share)
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the index of one of a few thousand values"
)]
fn of_sorted(values: &[f64], share: f64) -> f64 {
    assert!(!values.is_empty(), "nothing was measured");
    let place = (values.len() - 1) as f64 * share;
    let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

/// How long `work` takes.
pub fn millis(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    as_millis(began.elapsed())
}

pub fn as_millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
