//! Threads that admit and supervise runs. Each run has its own thread; an idle thread is kept for
//! the next run, which then starts faster.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How long an idle thread is kept.
const IDLE_MAX: Duration = Duration::from_secs(10);

type RunTask = Box<dyn FnOnce() + Send>;

/// The threads. Dropping this ends the idle threads now and the busy ones when they finish.
pub struct RunThreads {
    shared: Arc<RunThreadsShared>,
    threads_max: usize,
}

#[derive(Default)]
struct RunThreadsShared {
    state: Mutex<RunThreadsState>,
    work: Condvar,
}

#[derive(Default)]
struct RunThreadsState {
    waiting: VecDeque<RunTask>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl RunThreads {
    /// Allows at most `threads_max` threads and starts none.
    pub fn new(threads_max: usize) -> Self {
        Self { shared: Arc::default(), threads_max }
    }

    /// Runs `job` on an idle thread, on a new one, or, if all `threads_max` are busy, on the first
    /// that becomes idle. Returns an error, and drops `job`, if a thread cannot be created.
    pub fn start(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let job: RunTask = Box::new(job);
        let mut state = self.shared.lock();
        if state.idle > state.waiting.len() || state.threads >= self.threads_max {
            state.waiting.push_back(job);
            drop(state);
            self.shared.work.notify_one();
            return Ok(());
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let started = Builder::new().name("run".to_owned()).spawn(move || shared.work_from(job));
        started.map(drop).inspect_err(|_| self.shared.lock().threads -= 1)
    }
}

impl Drop for RunThreads {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl fmt::Debug for RunThreads {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RunThreads").field("threads_max", &self.threads_max).finish()
    }
}

impl RunThreadsShared {
    fn lock(&self) -> MutexGuard<'_, RunThreadsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `first`, then further jobs.
    fn work_from(&self, first: RunTask) {
        first();
        while let Some(job) = self.next() {
            job();
        }
    }

    /// Waits for the next job. Returns `None` if the thread must end, after it is no longer
    /// counted.
    fn next(&self) -> Option<RunTask> {
        let mut state = self.lock();
        state.idle += 1;
        let idle = |state: &mut RunThreadsState| state.waiting.is_empty() && !state.closed;
        let waited = self.work.wait_timeout_while(state, IDLE_MAX, idle);
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
        let job = state.waiting.pop_front();
        if job.is_none() {
            state.threads -= 1;
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::thread::{self, ThreadId};
    use std::time::Instant;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// Starts a job that sends its thread's id and lasts until the sender is dropped.
    fn begin(threads: &RunThreads) -> (Receiver<ThreadId>, std::sync::mpsc::Sender<()>) {
        let (sender, ids) = channel();
        let (hold, held) = channel::<()>();
        let job = move || {
            sender.send(thread::current().id()).unwrap();
            let _ = held.recv();
        };
        threads.start(job).unwrap();
        (ids, hold)
    }

    fn wait_until(what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < IDLE_MAX / 2, "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_idle(threads: &RunThreads) {
        wait_until("none is idle", || threads.shared.lock().idle > 0);
    }

    #[test]
    fn an_idle_thread_is_reused_and_a_busy_one_is_not() {
        let threads = RunThreads::new(8);
        let (first, hold) = begin(&threads);
        let first = first.recv_timeout(SOON).unwrap();
        let (other, hold_other) = begin(&threads);
        assert_ne!(other.recv_timeout(SOON).unwrap(), first);
        drop(hold);
        wait_idle(&threads);
        let (again, _hold) = begin(&threads);
        assert_eq!(again.recv_timeout(SOON).unwrap(), first);
        drop(hold_other);
    }

    #[test]
    fn a_job_waits_for_the_first_idle_thread_if_all_are_busy() {
        let threads = RunThreads::new(2);
        let (first, hold) = begin(&threads);
        let (second, _hold) = begin(&threads);
        let first = first.recv_timeout(SOON).unwrap();
        second.recv_timeout(SOON).unwrap();
        let (third, _hold) = begin(&threads);
        assert!(third.recv_timeout(Duration::from_millis(50)).is_err());
        drop(hold);
        assert_eq!(third.recv_timeout(SOON).unwrap(), first);
    }

    #[test]
    fn idle_threads_end_with_their_owner() {
        let threads = RunThreads::new(2);
        let shared = Arc::downgrade(&threads.shared);
        let (ids, hold) = begin(&threads);
        ids.recv_timeout(SOON).unwrap();
        drop(hold);
        wait_idle(&threads);
        drop(threads);
        wait_until("they are still there", || shared.strong_count() == 0);
    }
}
