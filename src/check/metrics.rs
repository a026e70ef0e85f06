//! The metrics of checks.

use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam_core::sync::counter::{Counter, DurationCounts, Durations};
use cofferdam_core::{PrestartMetrics, RunReport, SandboxMetrics, StandbyMetrics};

/// How runs end: the words of [`Outcome`](cofferdam_core::Outcome), and one for programs that did not
/// start.
pub const OUTCOMES: [&str; 10] = [
    "exited",
    "signaled",
    "timed_out",
    "cpu_limit",
    "memory_limit",
    "process_limit",
    "disk_limit",
    "output_limit",
    "cancelled",
    NOT_STARTED,
];
const NOT_STARTED: &str = "not_started";

/// The phases of a run, as `Server-Timing` names them.
pub const PHASES: [&str; 4] = ["queue", "prepare", "run", "cleanup"];

/// The metrics at one time.
#[derive(Debug, Clone, Default)]
pub struct CheckMetrics {
    /// Finished runs by language and outcome, zeros included.
    pub runs: Vec<RunCount>,
    /// The durations of each of [`PHASES`].
    pub phases: Vec<(&'static str, DurationCounts)>,
    /// The most concurrent runs.
    pub slots: usize,
    /// Live runs.
    pub slots_in_use: usize,
    /// Whether new runs are refused.
    pub draining: bool,
    /// The standby pool.
    pub standby: StandbyMetrics,
    /// The sandboxes whose runtime is started ahead.
    pub prestart: PrestartMetrics,
    /// The sandbox.
    pub sandbox: SandboxMetrics,
}

/// How often runs of one language ended in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunCount {
    /// A slug of the language table.
    pub language: String,
    /// One of [`OUTCOMES`].
    pub outcome: &'static str,
    /// How often.
    pub count: u64,
}

/// Counts runs. The labels are fixed at the start: clients cannot add any.
#[derive(Debug)]
pub struct RunCounts {
    by_language: BTreeMap<String, [Counter; OUTCOMES.len()]>,
    phases: [Durations; PHASES.len()],
}

impl RunCounts {
    /// Counters for these languages.
    pub fn of<'a>(slugs: impl Iterator<Item = &'a str>) -> Self {
        Self {
            by_language: slugs.map(|slug| (slug.to_owned(), Default::default())).collect(),
            phases: Default::default(),
        }
    }

    /// Counts a run and the time it was queued. Without a report its program did not start.
    pub fn count(&self, language: &str, report: Option<(&RunReport, Duration)>) {
        let word = report.map_or(NOT_STARTED, |(run, _)| run.outcome.word());
        let counters = self.by_language.get(language).into_iter().flatten();
        let counted = counters.zip(OUTCOMES).find(|(_, outcome)| *outcome == word);
        if let Some((counter, _)) = counted {
            counter.increment();
        }
        if let Some((run, queued)) = report {
            let timings = [queued, run.timings.prepare, run.timings.run, run.timings.cleanup];
            for (phase, took) in self.phases.iter().zip(timings) {
                phase.count(took);
            }
        }
    }

    /// The counts by language and outcome, and by phase.
    pub fn read(&self) -> (Vec<RunCount>, Vec<(&'static str, DurationCounts)>) {
        let of_language = |(language, counters): (&String, &[Counter; OUTCOMES.len()])| {
            let counts: Vec<RunCount> = counters
                .iter()
                .zip(OUTCOMES)
                .map(|(counter, outcome)| RunCount {
                    language: language.clone(),
                    outcome,
                    count: counter.get(),
                })
                .collect();
            counts
        };
        let runs = self.by_language.iter().flat_map(of_language).collect();
        (runs, PHASES.into_iter().zip(self.phases.iter().map(Durations::read)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::{LimitKind, Outcome};

    #[test]
    fn every_outcome_has_a_counter() {
        use LimitKind::{CpuTime, Disk, Memory, Output, Processes, WallTime};
        let by_limit = [WallTime, CpuTime, Memory, Processes, Disk, Output]
            .map(|kind| Outcome::LimitHit { kind, code: None });
        let by_itself =
            [Outcome::Exited { code: 1 }, Outcome::Signaled { signal: 9 }, Outcome::Cancelled];
        let words: Vec<&str> = by_itself.into_iter().chain(by_limit).map(Outcome::word).collect();
        assert_eq!(words.len() + 1, OUTCOMES.len());
        assert!(words.iter().all(|word| OUTCOMES.contains(word)), "{words:?}");
    }
}
