//! What is counted of evaluations, for the metrics of a service.

use std::time::Duration;

use crate::evaluation::cache::CacheKind;
use crate::evaluation::result::{EvaluationResult, EvaluationStep, EvaluationVerdict, PhaseEntry};
use cofferdam_core::sync::counter::{Counter, DurationCounts, Durations};

/// The steps that are timed, with the cache that each may be answered from.
const TIMED_STEPS: [(EvaluationStep, Option<CacheKind>); 5] = [
    (EvaluationStep::DownloadingTask, Some(CacheKind::Archives)),
    (EvaluationStep::CloningRepo, Some(CacheKind::Mirrors)),
    (EvaluationStep::InstallingDeps, Some(CacheKind::Bases)),
    (EvaluationStep::RunningAgent, None),
    (EvaluationStep::RunningTests, None),
];

/// What was counted at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EvaluationMetrics {
    /// Evaluations that have ended, by verdict, zeros included.
    pub verdicts: Vec<(EvaluationVerdict, u64)>,
    /// How long each step took, and whether its result was in a cache.
    pub phases: Vec<(EvaluationStep, bool, DurationCounts)>,
    /// How often each cache had what was asked for, and had not.
    pub caches: Vec<CacheMetrics>,
}

/// How often a cache had what was asked for, and how full it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheMetrics {
    /// The cache.
    pub kind: CacheKind,
    /// How often it had it.
    pub hits: u64,
    /// How often it had not.
    pub misses: u64,
    /// Bytes of its entries.
    pub bytes: u64,
}

impl EvaluationMetrics {
    /// With the bytes of each cache.
    #[must_use]
    pub fn with_cache_bytes(mut self, bytes: &[(CacheKind, u64)]) -> Self {
        for cache in &mut self.caches {
            let found = bytes.iter().find(|(kind, _)| *kind == cache.kind);
            cache.bytes = found.map_or(0, |(_, bytes)| *bytes);
        }
        self
    }
}

/// Counts evaluations that have ended.
#[derive(Debug, Default)]
pub struct EvaluationTally {
    verdicts: [Counter; EvaluationVerdict::ALL.len()],
    phases: [PhaseTimes; TIMED_STEPS.len()],
}

#[derive(Debug, Default)]
struct PhaseTimes {
    made: Durations,
    cached: Durations,
}

impl EvaluationTally {
    /// Counts an evaluation that has ended, once.
    pub fn ended(&self, result: &EvaluationResult) {
        let counters = EvaluationVerdict::ALL.iter().zip(&self.verdicts);
        let counted = counters.filter(|(verdict, _)| result.verdict == Some(**verdict));
        counted.for_each(|(_, counter)| counter.increment());
        for PhaseEntry { step, duration_ms, cached, .. } in &result.phases {
            let timed = TIMED_STEPS.iter().zip(&self.phases).find(|((known, _), _)| known == step);
            if let Some((_, times)) = timed {
                let took = Duration::from_millis(*duration_ms);
                if *cached { &times.cached } else { &times.made }.count(took);
            }
        }
    }

    /// What was counted so far. A step with `cached` was a hit of its cache, one without a miss.
    pub fn read(&self) -> EvaluationMetrics {
        let mut metrics = EvaluationMetrics {
            verdicts: EvaluationVerdict::ALL
                .into_iter()
                .zip(self.verdicts.iter().map(Counter::get))
                .collect(),
            ..EvaluationMetrics::default()
        };
        for ((step, kind), times) in TIMED_STEPS.into_iter().zip(&self.phases) {
            let (made, cached) = (times.made.read(), times.cached.read());
            if let Some(kind) = kind {
                let (hits, misses) = (cached.count(), made.count());
                metrics.caches.push(CacheMetrics { kind, hits, misses, bytes: 0 });
                metrics.phases.push((step, true, cached));
            }
            metrics.phases.push((step, false, made));
        }
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_and_each_step_is_counted_once_and_cached_steps_are_hits() {
        let tally = EvaluationTally::default();
        let entry = |step, cached| PhaseEntry { step, duration_ms: 700, cached, limit: None };
        let mut result = EvaluationResult::pending("id".to_owned(), String::new());
        result.verdict = Some(EvaluationVerdict::Partial);
        result.phases = vec![
            entry(EvaluationStep::DownloadingTask, true),
            entry(EvaluationStep::CloningRepo, true),
            entry(EvaluationStep::InstallingDeps, false),
            entry(EvaluationStep::RunningAgent, false),
            entry(EvaluationStep::Cleanup, false),
        ];
        tally.ended(&result);
        tally.ended(&result);
        let bytes = [(CacheKind::Bases, 7), (CacheKind::Archives, 5)];
        let metrics = tally.read().with_cache_bytes(&bytes);
        let counted: Vec<_> = metrics.verdicts.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [&(EvaluationVerdict::Partial, 2)]);
        let caches: Vec<_> = metrics
            .caches
            .iter()
            .map(|one| (one.kind.word(), one.hits, one.misses, one.bytes))
            .collect();
        assert_eq!(caches, [("archives", 2, 0, 5), ("mirrors", 2, 0, 0), ("bases", 0, 2, 7)]);
        let agent = metrics.phases.iter().find(|(step, ..)| *step == EvaluationStep::RunningAgent);
        let (_, cached, times) = agent.unwrap();
        assert!(!cached && times.count() == 2 && (times.sum_seconds - 1.4).abs() < 1e-9);
    }
}
