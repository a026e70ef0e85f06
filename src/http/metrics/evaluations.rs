//! The metric families of evaluations.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::families::FamilyEncoder;
use crate::evaluation::service::{EvaluationCounts, EvaluationMetrics, Evaluations};

/// Collects what everybody may see: the six series of the seed.
pub struct PublicCollector(pub Arc<dyn Evaluations>);

impl fmt::Debug for PublicCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PublicCollector").finish_non_exhaustive()
    }
}

/// Counters whose names lack `_total`, which OpenMetrics asks for: they are gauges there.
pub const SEED_COUNTERS: [&str; 4] = [
    "term_executor_evaluations_passed",
    "term_executor_evaluations_failed",
    "term_executor_evaluations_cancelled",
    "term_executor_evaluations_duration_ms_sum",
];

impl Collector for PublicCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        FamilyEncoder(encoder).evaluation_counts(&self.0.counts())
    }
}

impl FamilyEncoder<'_> {
    /// The six series of the seed.
    pub fn evaluation_counts(&mut self, counts: &EvaluationCounts) -> fmt::Result {
        let EvaluationCounts { active, passed, failed, cancelled, duration_ms_sum, .. } = *counts;
        let total = passed.saturating_add(failed).saturating_add(cancelled);
        let help = "Evaluations that have ended since the start.";
        self.counter("term_executor_evaluations", help, &total)?;
        for (name, help, value) in [
            ("term_executor_evaluations_passed", "Those that completed.", passed),
            ("term_executor_evaluations_failed", "Those that failed.", failed),
            (
                "term_executor_evaluations_cancelled",
                "Those that were cancelled, or whose time was over.",
                cancelled,
            ),
            ("term_executor_evaluations_active", "Evaluations that run now.", active),
            (
                "term_executor_evaluations_duration_ms_sum",
                "The time of all evaluations that have ended, milliseconds.",
                duration_ms_sum,
            ),
        ] {
            self.gauge(name, help, value)?;
        }
        Ok(())
    }

    /// How evaluations ended, how long their steps took, and their caches.
    pub fn evaluations(&mut self, metrics: &EvaluationMetrics) -> fmt::Result {
        let ended = metrics.verdicts.iter();
        let ended = ended.map(|(verdict, count)| (vec![("verdict", verdict.word())], *count));
        let help = "Evaluations that have ended, by verdict.";
        self.counters("cofferdam_evaluations", help, ended)?;
        let phases = metrics.phases.iter().map(|(step, cached, took)| {
            let cached = if *cached { "true" } else { "false" };
            (vec![("step", step.word()), ("cached", cached)], took)
        });
        let help =
            "How long each step of an evaluation took, and whether its result was in a cache.";
        self.histograms("cofferdam_evaluation_phase_seconds", help, phases)?;
        let hits = metrics.caches.iter().map(|one| (vec![("kind", one.kind.word())], one.hits));
        let help = "Steps whose result was in a cache.";
        self.counters("cofferdam_cache_hits", help, hits)?;
        let misses = metrics.caches.iter().map(|one| (vec![("kind", one.kind.word())], one.misses));
        let help = "Steps whose result was not in a cache.";
        self.counters("cofferdam_cache_misses", help, misses)?;
        let bytes = metrics.caches.iter().map(|one| (vec![("kind", one.kind.word())], one.bytes));
        let help = "Bytes of the entries of a cache.";
        self.gauges("cofferdam_cache_bytes", help, bytes)
    }
}
