//! The queue: which jobs wait, which are live, and how many may run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cofferdam_core::job::JobId;
use cofferdam_core::sync::permits::{Permit, Permits};

/// Jobs in the order of arrival, and the permits to run, one for each worker. `W` is a waiting job,
/// `L` describes a live one.
#[derive(Debug)]
pub struct JobQueue<W, L> {
    queue: VecDeque<(JobId, W)>,
    live: BTreeMap<JobId, L>,
    /// Places reserved for jobs whose records are being created.
    reserved: usize,
    permits: Arc<Permits>,
    workers: usize,
    queue_max: usize,
    closed: bool,
}

/// Why the queue refuses a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueError {
    /// The queue is full.
    Full,
    /// The queue accepts no new jobs.
    Closed,
}

impl<W, L> JobQueue<W, L> {
    /// A queue for so many workers, with room for `queue_max` waiting jobs in addition to theirs.
    pub fn new(workers: usize, queue_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            live: BTreeMap::new(),
            reserved: 0,
            permits: Permits::new(workers),
            workers,
            queue_max,
            closed: false,
        }
    }

    /// Reserves a place, which [`enter`](Self::enter) fills or [`release`](Self::release) frees.
    pub fn reserve(&mut self) -> Result<(), QueueError> {
        if self.closed {
            return Err(QueueError::Closed);
        }
        let idle = self.workers.saturating_sub(self.running());
        if self.queue.len() + self.reserved >= self.queue_max.saturating_add(idle) {
            return Err(QueueError::Full);
        }
        self.reserved += 1;
        Ok(())
    }

    /// Frees a reserved place.
    pub fn release(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Enters a job in its reserved place. Returns the job if the queue has been closed.
    pub fn enter(&mut self, id: JobId, queued: W, live: L) -> Result<(), W> {
        self.release();
        if self.closed {
            return Err(queued);
        }
        self.live.insert(id.clone(), live);
        self.queue.push_back((id, queued));
        Ok(())
    }

    /// Takes the job that has waited longest, with a permit to run it.
    pub fn begin(&mut self) -> Option<(W, Permit)> {
        let permit = self.permits.try_enter()?;
        let (_, queued) = self.queue.pop_front()?;
        Some((queued, permit))
    }

    /// Whether a job may wait for a permit, whose release sends no notification.
    pub fn wants_permit(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Removes a job that a worker has ended. Its permit is released separately.
    pub fn end(&mut self, id: &JobId) {
        self.live.remove(id);
    }

    /// Takes a job out of the queue. It stays live until [`JobQueue::forget`].
    pub fn withdraw(&mut self, id: &JobId) -> Option<W> {
        let index = self.queue.iter().position(|(waiting, _)| waiting == id)?;
        self.queue.remove(index).map(|(_, queued)| queued)
    }

    /// Takes all waiting jobs out of the queue.
    pub fn withdraw_all(&mut self) -> Vec<W> {
        self.queue.drain(..).map(|(_, queued)| queued).collect()
    }

    /// Removes a job that was withdrawn and has ended.
    pub fn forget(&mut self, id: &JobId) {
        self.live.remove(id);
    }

    /// Refuses new jobs from now on.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether new jobs are refused.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// A job that has not ended.
    pub fn live(&self, id: &JobId) -> Option<&L> {
        self.live.get(id)
    }

    /// All jobs that have not ended.
    pub fn all_live(&self) -> impl Iterator<Item = (&JobId, &L)> {
        self.live.iter()
    }

    /// Whether no job is live or about to be.
    pub fn is_idle(&self) -> bool {
        self.live.is_empty() && self.reserved == 0
    }

    /// How many jobs may run.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// How many jobs may wait.
    pub fn queue_max(&self) -> usize {
        self.queue_max
    }

    /// How many jobs wait.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// How many permits are held: by running jobs, and by sandboxes that are not dead.
    pub fn running(&self) -> usize {
        self.permits.taken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> JobId {
        JobId::parse(&format!("job_{number}")).unwrap()
    }

    fn enter(waiting: &mut JobQueue<usize, ()>, number: usize) -> Result<(), QueueError> {
        waiting.reserve()?;
        waiting.enter(id(number), number, ()).map_err(|_| QueueError::Closed)
    }

    #[test]
    fn an_idle_worker_adds_a_place_to_the_queue() {
        let mut waiting = JobQueue::new(1, 2);
        for number in 0..3 {
            assert_eq!(enter(&mut waiting, number), Ok(()));
        }
        assert_eq!(enter(&mut waiting, 3), Err(QueueError::Full));
        let (first, permit) = waiting.begin().unwrap();
        assert_eq!(first, 0);
        assert_eq!(enter(&mut waiting, 3), Err(QueueError::Full));
        waiting.end(&id(0));
        drop(permit);
        assert_eq!(enter(&mut waiting, 3), Ok(()));
        assert_eq!(waiting.begin().map(|(job, _)| job), Some(1));
        assert_eq!(waiting.begin().map(|(job, _)| job), Some(2));
        assert!(waiting.live(&id(0)).is_none() && waiting.live(&id(1)).is_some());
    }

    #[test]
    fn no_job_begins_while_the_permit_is_retained() {
        let mut waiting = JobQueue::new(1, 1);
        enter(&mut waiting, 0).unwrap();
        let (_, permit) = waiting.begin().unwrap();
        waiting.end(&id(0));
        enter(&mut waiting, 1).unwrap();
        assert!(waiting.begin().is_none());
        assert_eq!(enter(&mut waiting, 2), Err(QueueError::Full));
        assert_eq!(waiting.running(), 1);
        drop(permit);
        assert_eq!(waiting.begin().map(|(job, _)| job), Some(1));
    }

    #[test]
    fn a_reserved_place_counts_until_it_is_released() {
        let mut waiting: JobQueue<usize, ()> = JobQueue::new(0, 1);
        assert_eq!(waiting.reserve(), Ok(()));
        assert_eq!(waiting.reserve(), Err(QueueError::Full));
        assert!(!waiting.is_idle());
        waiting.release();
        assert!(waiting.is_idle());
        assert_eq!(waiting.reserve(), Ok(()));
    }

    #[test]
    fn a_withdrawn_job_does_not_begin_and_a_closed_queue_takes_none() {
        let mut waiting = JobQueue::new(1, 9);
        for number in 0..3 {
            enter(&mut waiting, number).unwrap();
        }
        assert_eq!(waiting.withdraw(&id(0)), Some(0));
        assert_eq!(waiting.withdraw(&id(0)), None);
        assert!(!waiting.is_idle() && waiting.live(&id(0)).is_some());
        waiting.forget(&id(0));
        assert_eq!(waiting.begin().map(|(job, _)| job), Some(1));
        waiting.reserve().unwrap();
        waiting.close();
        assert_eq!(waiting.enter(id(7), 7, ()), Err(7));
        assert_eq!(waiting.reserve(), Err(QueueError::Closed));
        assert_eq!(waiting.withdraw_all(), [2]);
    }
}
