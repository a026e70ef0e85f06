//! Counters of jobs.

use cofferdam_core::job::JobStatus;
use cofferdam_core::sync::counter::Counter;
use serde::Serialize;

/// Counts ended jobs since the start, by their last state.
#[derive(Debug, Default)]
pub struct JobCounts([Counter; JobStatus::ALL.len()]);

/// The counters at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobMetrics {
    /// Waiting jobs.
    pub queued: usize,
    /// The most waiting jobs.
    pub queue_max: usize,
    /// Running jobs.
    pub running: usize,
    /// The most running jobs.
    pub workers: usize,
    /// Ended jobs since the start, by their last state.
    pub ended: Vec<(JobStatus, u64)>,
}

/// The jobs in the status of the service.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct JobsStatus {
    /// Waiting jobs.
    pub queued: usize,
    /// Running jobs.
    pub running: usize,
    /// The most running jobs.
    pub workers: usize,
}

impl From<&JobMetrics> for JobsStatus {
    fn from(metrics: &JobMetrics) -> Self {
        let JobMetrics { queued, running, workers, .. } = *metrics;
        Self { queued, running, workers }
    }
}

impl JobCounts {
    /// Counts a job that ended in `status`.
    pub fn count(&self, status: JobStatus) {
        let index = JobStatus::ALL.iter().position(|known| *known == status);
        if let Some(counter) = index.and_then(|index| self.0.get(index)) {
            counter.increment();
        }
    }

    /// The counts by last state.
    pub fn read(&self) -> Vec<(JobStatus, u64)> {
        let counted = JobStatus::ALL.into_iter().zip(&self.0);
        counted
            .filter(|(status, _)| status.is_terminal())
            .map(|(status, counter)| (status, counter.get()))
            .collect()
    }
}
