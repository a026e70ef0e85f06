//! A batch as JSON (pure).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::evaluation::result::{EvaluationStatus, EvaluationVerdict};
use crate::evaluation::service::record::{EvaluationLine, RecordFile};

/// An evaluation of a batch.
#[derive(Debug, Clone)]
pub struct BatchEntry {
    /// The name of its agent.
    pub agent: String,
    /// What is known of it.
    pub record: RecordFile,
}

#[derive(Debug, Default, Serialize)]
struct BatchCounts {
    total: u64,
    pending: u64,
    running: u64,
    verdicts: BTreeMap<&'static str, u64>,
    resolved_rate: Option<f64>,
    #[serde(skip)]
    judged: u64,
}

#[derive(Debug, Default, Serialize)]
struct TaskCounts {
    #[serde(flatten)]
    counts: BatchCounts,
    flaky: bool,
    #[serde(skip)]
    outcomes: BTreeMap<String, BTreeSet<&'static str>>,
}

#[derive(Serialize)]
struct BatchSummary<'a> {
    batch_id: &'a str,
    status: &'static str,
    #[serde(flatten)]
    counts: BatchCounts,
    agents: BTreeMap<String, BatchCounts>,
    tasks: BTreeMap<String, TaskCounts>,
    evaluations: Vec<BatchLine<'a>>,
}

#[derive(Serialize)]
struct BatchLine<'a> {
    #[serde(flatten)]
    line: EvaluationLine<'a>,
    agent: &'a str,
}

impl BatchCounts {
    fn add(&mut self, record: &RecordFile) {
        self.total += 1;
        match record.status {
            EvaluationStatus::Pending => self.pending += 1,
            EvaluationStatus::Running => self.running += 1,
            _ => {
                let verdict = record.verdict.unwrap_or(EvaluationVerdict::InfraError);
                *self.verdicts.entry(verdict.word()).or_default() += 1;
                self.judged += u64::from(record.passed.is_some());
            }
        }
        let resolved = self.verdicts.get(EvaluationVerdict::Resolved.word());
        let resolved = resolved.copied().unwrap_or(0);
        self.resolved_rate = (self.judged > 0).then(|| ratio(resolved, self.judged));
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    // A batch has far fewer evaluations than u32 holds.
    let number = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    number(part) / number(whole)
}

/// A batch as JSON.
///
/// # Errors
/// It is no JSON.
pub fn summary_json(
    batch_id: &str,
    is_cancelled: bool,
    entries: &[BatchEntry],
) -> Result<String, serde_json::Error> {
    let (mut counts, mut agents) = (BatchCounts::default(), BTreeMap::<_, BatchCounts>::new());
    let mut tasks = BTreeMap::<String, TaskCounts>::new();
    for BatchEntry { agent, record } in entries {
        counts.add(record);
        agents.entry(agent.clone()).or_default().add(record);
        let task = tasks.entry(record.task_url.clone()).or_default();
        task.counts.add(record);
        if let (Some(verdict), Some(_)) = (record.verdict, record.passed) {
            let outcomes = task.outcomes.entry(agent.clone()).or_default();
            outcomes.insert(verdict.word());
            task.flaky |= outcomes.len() > 1;
        }
    }
    let status = match counts.pending + counts.running {
        0 if is_cancelled => "cancelled",
        0 => "done",
        _ => "running",
    };
    fn line(entry: &BatchEntry) -> BatchLine<'_> {
        BatchLine { line: EvaluationLine::of(&entry.record), agent: &entry.agent }
    }
    let evaluations = entries.iter().map(line).collect();
    serde_json::to_string(&BatchSummary { batch_id, status, counts, agents, tasks, evaluations })
}
