//! How many jobs ended how, and how many there are now.

use cofferdam_core::job::JobStatus;
use cofferdam_core::sync::counter::Counter;
use serde::Serialize;

/// Of the jobs since the start, by their last state.
#[derive(Debug, Default)]
pub struct JobCounts([Counter; JobStatus::ALL.len()]);

/// What there is to tell of the jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobMetrics {
    /// Those that wait.
    pub queued: usize,
    /// The most that may.
    pub queue_max: usize,
    /// Those that run.
    pub running: usize,
    /// The most at once.
    pub workers: usize,
    /// Since the start, by their last state.
    pub ended: Vec<(JobStatus, u64)>,
}

/// Agents' jobs, now and at most.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct JobsStatus {
    /// Those that wait.
    pub queued: usize,
    /// Those that run.
    pub running: usize,
    /// The most that run at once.
    pub workers: usize,
}

impl From<&JobMetrics> for JobsStatus {
    fn from(figures: &JobMetrics) -> Self {
        let JobMetrics { queued, running, workers, .. } = *figures;
        Self { queued, running, workers }
    }
}

impl JobCounts {
    /// One more that ended so.
    pub fn count(&self, status: JobStatus) {
        let index = JobStatus::ALL.iter().position(|known| *known == status);
        if let Some(counter) = index.and_then(|index| self.0.get(index)) {
            counter.increment();
        }
    }

    /// How many of each last state so far.
    pub fn read(&self) -> Vec<(JobStatus, u64)> {
        let counted = JobStatus::ALL.into_iter().zip(&self.0);
        counted
            .filter(|(status, _)| status.is_terminal())
            .map(|(status, counter)| (status, counter.get()))
            .collect()
    }
}
