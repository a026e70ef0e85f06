//! Which jobs wait, which are live, and how many may run (pure but for what it holds).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cofferdam_core::job::JobId;
use cofferdam_core::sync::permits::{Permit, Permits};

/// Jobs in the order they came, and the permits to run, one for each worker. `W` is a job that waits, `L` what
/// is known of a live one.
#[derive(Debug)]
pub struct Waiting<W, L> {
    queue: VecDeque<(JobId, W)>,
    live: BTreeMap<JobId, L>,
    /// Places that were given to jobs whose records are being made.
    promised: usize,
    permits: Arc<Permits>,
    workers: usize,
    queue_max: usize,
    closed: bool,
}

/// Why a job gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// As many wait as may.
    Full,
    /// No new jobs are taken.
    Closed,
}

impl<W, L> Waiting<W, L> {
    /// For so many workers, and as many waiting jobs beside those that they have.
    pub fn new(workers: usize, queue_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            live: BTreeMap::new(),
            promised: 0,
            permits: Permits::new(workers),
            workers,
            queue_max,
            closed: false,
        }
    }

    /// Promises a place: the job follows, or gives it back.
    pub fn promise(&mut self) -> Result<(), NoPlace> {
        if self.closed {
            return Err(NoPlace::Closed);
        }
        let idle = self.workers.saturating_sub(self.running());
        if self.queue.len() + self.promised >= self.queue_max.saturating_add(idle) {
            return Err(NoPlace::Full);
        }
        self.promised += 1;
        Ok(())
    }

    /// A promised place is not needed.
    pub fn give_back(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// The job that a place was promised for; given back where no more are taken by now.
    pub fn enter(&mut self, id: JobId, waits: W, live: L) -> Result<(), W> {
        self.give_back();
        if self.closed {
            return Err(waits);
        }
        self.live.insert(id.clone(), live);
        self.queue.push_back((id, waits));
        Ok(())
    }

    /// The job that has waited longest, for a worker, with the permit to run it.
    pub fn begin(&mut self) -> Option<(W, Permit)> {
        let permit = self.permits.try_enter()?;
        let (_, waits) = self.queue.pop_front()?;
        Some((waits, permit))
    }

    /// Whether a job waits for nothing but a permit, which comes without a word to anybody.
    pub fn wants_permit(&self) -> bool {
        !self.queue.is_empty()
    }

    /// A worker is done with its job; its permit ends by itself.
    pub fn end(&mut self, id: &JobId) {
        self.live.remove(id);
    }

    /// Takes a job out of the queue; it stays live until [`Waiting::forget`].
    pub fn withdraw(&mut self, id: &JobId) -> Option<W> {
        let index = self.queue.iter().position(|(waiting, _)| waiting == id)?;
        self.queue.remove(index).map(|(_, waits)| waits)
    }

    /// Takes out all that wait.
    pub fn withdraw_all(&mut self) -> Vec<W> {
        self.queue.drain(..).map(|(_, waits)| waits).collect()
    }

    /// A job that was withdrawn is over.
    pub fn forget(&mut self, id: &JobId) {
        self.live.remove(id);
    }

    /// Takes no new jobs from now on.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether no new jobs are taken.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// What is known of a job that is not over.
    pub fn live(&self, id: &JobId) -> Option<&L> {
        self.live.get(id)
    }

    /// The same of all of them.
    pub fn all_live(&self) -> impl Iterator<Item = (&JobId, &L)> {
        self.live.iter()
    }

    /// Whether no job is live, and none is about to be.
    pub fn is_idle(&self) -> bool {
        self.live.is_empty() && self.promised == 0
    }

    /// How many there may be that run.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// How many may wait.
    pub fn queue_max(&self) -> usize {
        self.queue_max
    }

    /// How many wait.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// How many permits are taken: by workers that have a job, and by boxes that are not dead.
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

    fn enter(waiting: &mut Waiting<usize, ()>, number: usize) -> Result<(), NoPlace> {
        waiting.promise()?;
        waiting.enter(id(number), number, ()).map_err(|_| NoPlace::Closed)
    }

    #[test]
    fn as_many_wait_as_may_beside_those_that_an_idle_worker_takes() {
        let mut waiting = Waiting::new(1, 2);
        for number in 0..3 {
            assert_eq!(enter(&mut waiting, number), Ok(()));
        }
        assert_eq!(enter(&mut waiting, 3), Err(NoPlace::Full));
        let (first, permit) = waiting.begin().unwrap();
        assert_eq!(first, 0);
        assert_eq!(enter(&mut waiting, 3), Err(NoPlace::Full));
        waiting.end(&id(0));
        drop(permit);
        assert_eq!(enter(&mut waiting, 3), Ok(()));
        assert_eq!(waiting.begin().map(|(job, _)| job), Some(1));
        assert_eq!(waiting.begin().map(|(job, _)| job), Some(2));
        assert!(waiting.live(&id(0)).is_none() && waiting.live(&id(1)).is_some());
    }

    #[test]
    fn no_job_begins_and_none_is_promised_a_worker_while_the_permit_is_retained() {
        let mut waiting = Waiting::new(1, 1);
        enter(&mut waiting, 0).unwrap();
        let (_, permit) = waiting.begin().unwrap();
        waiting.end(&id(0));
        enter(&mut waiting, 1).unwrap();
        assert!(waiting.begin().is_none());
        assert_eq!(enter(&mut waiting, 2), Err(NoPlace::Full));
        assert_eq!(waiting.running(), 1);
        drop(permit);
        assert_eq!(waiting.begin().map(|(job, _)| job), Some(1));
    }

    #[test]
    fn a_promised_place_counts_until_it_is_given_back() {
        let mut waiting: Waiting<usize, ()> = Waiting::new(0, 1);
        assert_eq!(waiting.promise(), Ok(()));
        assert_eq!(waiting.promise(), Err(NoPlace::Full));
        assert!(!waiting.is_idle());
        waiting.give_back();
        assert!(waiting.is_idle());
        assert_eq!(waiting.promise(), Ok(()));
    }

    #[test]
    fn a_withdrawn_job_is_nobodys_to_begin_and_a_closed_queue_takes_none() {
        let mut waiting = Waiting::new(1, 9);
        for number in 0..3 {
            enter(&mut waiting, number).unwrap();
        }
        assert_eq!(waiting.withdraw(&id(0)), Some(0));
        assert_eq!(waiting.withdraw(&id(0)), None);
        assert!(!waiting.is_idle() && waiting.live(&id(0)).is_some());
        waiting.forget(&id(0));
        assert_eq!(waiting.begin().map(|(job, _)| job), Some(1));
        waiting.promise().unwrap();
        waiting.close();
        assert_eq!(waiting.enter(id(7), 7, ()), Err(7));
        assert_eq!(waiting.promise(), Err(NoPlace::Closed));
        assert_eq!(waiting.withdraw_all(), [2]);
    }
}
