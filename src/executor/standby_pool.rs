//! SandboxFactory made ahead of the runs that will want them, by a thread of their own.
//!
//! A box dies with the thread that cloned it, so the preparer lives as long as any
//! run in a box of its making: until this is dropped, when there is none.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::{Duration, Instant};

use crate::executor::factory::{ReadySandbox, SandboxFactory};
use crate::executor::pool_key::PoolKey;
use crate::executor::pool_policy::{PoolAction, PoolPolicy, PoolTake, PrepareResult, SHORT};
use cofferdam_core::sync::counter::Counter;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{SetupFailure, StandbyFigures};

/// How long a run waits for a box that is being made; one of its own takes no longer.
const PREPARE_WAIT: Duration = Duration::from_millis(10);

/// The boxes, and the thread that makes them.
#[derive(Debug)]
pub struct StandbyPool {
    shared: Arc<PoolShared>,
    preparer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct PoolShared {
    boxes: Arc<SandboxFactory>,
    prepared_max: usize,
    counts: PoolCounts,
    state: Mutex<PoolState>,
    /// For the preparer.
    work: Condvar,
    /// For runs that wait for a box.
    made: Condvar,
}

#[derive(Debug)]
struct PoolState {
    policy: PoolPolicy<ReadySandbox>,
    /// When the preparer looks again by itself.
    wakes_at: Option<Instant>,
    /// Whether the preparer is to end.
    stopping: bool,
}

/// What became of boxes, since the start.
#[derive(Debug, Default)]
struct PoolCounts {
    made: Counter,
    used: Counter,
    dropped: Counter,
    failed: Counter,
}

/// A run of some key that is live; dropped when it has ended.
#[derive(Debug)]
pub struct LiveRun<'a> {
    standby: &'a StandbyPool,
    key: Arc<PoolKey>,
    began: Instant,
}

impl StandbyPool {
    /// At most `prepared_max` of `boxes`.
    pub fn start(boxes: Arc<SandboxFactory>, prepared_max: usize) -> Result<Self, SetupFailure> {
        let cpus = available_parallelism().map_or(1, usize::from);
        let policy = PoolPolicy::new(prepared_max, cpus);
        let shared = Arc::new(PoolShared {
            boxes,
            prepared_max,
            counts: PoolCounts::default(),
            state: Mutex::new(PoolState { policy, wakes_at: None, stopping: false }),
            work: Condvar::new(),
            made: Condvar::new(),
        });
        let preparer = Builder::new().name("standby".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.prepare_and_discard()
        });
        let preparer = preparer.map_err(|error| SetupFailure::from_io("standby thread", &error))?;
        Ok(Self { shared, preparer: Some(preparer) })
    }

    /// Notes that a run of `key` begins: from now on boxes of it are wanted.
    pub fn begin(&self, key: PoolKey) -> LiveRun<'_> {
        let (key, began) = (Arc::new(key), Instant::now());
        let mut state = self.shared.lock();
        let outdated = state.policy.begin(&key, began);
        self.shared.wake_preparer(&state, began);
        drop(state);
        // Killing and reaping them is done here, where nobody waits for the lock.
        self.shared.discard(outdated);
        LiveRun { standby: self, key, began }
    }

    /// The figures now.
    pub fn figures(&self) -> StandbyFigures {
        let PoolShared { prepared_max, counts, .. } = &*self.shared;
        StandbyFigures {
            boxes_max: *prepared_max,
            ready: self.shared.lock().policy.ready(),
            made: counts.made.get(),
            used: counts.used.get(),
            dropped: counts.dropped.get(),
            failed: counts.failed.get(),
        }
    }

    /// Lets go of every box and makes no more.
    pub fn close(&self) {
        self.shared.lock().policy.close();
        self.shared.work.notify_one();
    }
}

impl LiveRun<'_> {
    /// A box for this run, if one is ready or will be at once.
    pub fn take(&self) -> Option<ReadySandbox> {
        let shared = &self.standby.shared;
        loop {
            let ready = shared.take(&self.key)?;
            // What is fit is asked outside the lock: it reads files.
            match shared.boxes.is_current(&ready) {
                Ok(true) => {
                    shared.counts.used.increment();
                    return Some(ready);
                }
                Ok(false) => log::info!("a box made ahead is no longer fit: let go"),
                Err(failure) => log::warn!("a box made ahead: {failure}: let go"),
            }
            self.discard_others();
            shared.discard([ready]);
        }
    }

    /// Where one box is dead or outdated, the others of its kind are not to be counted on.
    pub fn discard_others(&self) {
        let others = self.standby.shared.lock().policy.clear(&self.key);
        self.standby.shared.discard(others);
    }
}

impl Drop for LiveRun<'_> {
    fn drop(&mut self) {
        let (shared, now) = (&self.standby.shared, Instant::now());
        let mut state = shared.lock();
        state.policy.end(&self.key, self.began, now);
        shared.wake_preparer(&state, now);
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the preparer, unless it looks soon: a wake-up for each beginning and end
    /// would cost the runs more than a box that stands a little later.
    fn wake_preparer(&self, state: &PoolState, now: Instant) {
        if state.wakes_at.is_none_or(|at| at > now + SHORT) {
            self.work.notify_one();
        }
    }

    /// Kills and reaps `boxes`, which no run will get.
    fn discard(&self, boxes: impl IntoIterator<Item = ReadySandbox>) {
        for unused in boxes {
            drop(unused);
            self.counts.dropped.increment();
        }
    }

    fn take(&self, key: &PoolKey) -> Option<ReadySandbox> {
        let deadline = Deadline::after(PREPARE_WAIT);
        let mut state = self.lock();
        loop {
            match state.policy.take(key) {
                PoolTake::Prepared(ready) => return Some(ready),
                PoolTake::InPreparation if !deadline.passed() => {
                    state = wait(&self.made, state, Some(deadline.remaining()));
                }
                PoolTake::InPreparation | PoolTake::Nothing => return None,
            }
        }
    }

    /// What the preparer does.
    fn prepare_and_discard(&self) {
        let mut state = self.lock();
        while !state.stopping {
            let now = Instant::now();
            state.wakes_at = Some(now);
            match state.policy.next(now) {
                PoolAction::Wait(until) => {
                    state.wakes_at = until;
                    let at_most = until.map(|until| until.saturating_duration_since(now));
                    state = wait(&self.work, state, at_most);
                }
                PoolAction::Discard(boxes) => {
                    drop(state);
                    self.discard(boxes);
                    state = self.lock();
                }
                PoolAction::Make(key) => {
                    drop(state);
                    let made = self.make(&key);
                    state = self.lock();
                    let unwanted = state.policy.made(&key, made, Instant::now());
                    drop(state);
                    self.made.notify_all();
                    self.discard(unwanted);
                    state = self.lock();
                }
            }
        }
    }

    fn make(&self, key: &PoolKey) -> PrepareResult<ReadySandbox> {
        match self.boxes.stand(key) {
            Ok(Some(ready)) => {
                self.counts.made.increment();
                PrepareResult::Prepared(ready)
            }
            Ok(None) => PrepareResult::Unsettled,
            Err(failure) => {
                log::warn!("a box cannot be made ahead: {failure}");
                self.counts.failed.increment();
                PrepareResult::Failed
            }
        }
    }
}

fn wait<'a>(
    condition: &Condvar,
    state: MutexGuard<'a, PoolState>,
    at_most: Option<Duration>,
) -> MutexGuard<'a, PoolState> {
    match at_most {
        Some(at_most) => {
            let waited = condition.wait_timeout(state, at_most);
            waited.unwrap_or_else(PoisonError::into_inner).0
        }
        None => condition.wait(state).unwrap_or_else(PoisonError::into_inner),
    }
}

impl Drop for StandbyPool {
    fn drop(&mut self) {
        self.close();
        {
            let mut state = self.shared.lock();
            state.stopping = true;
        }
        self.shared.work.notify_one();
        if let Some(preparer) = self.preparer.take()
            && preparer.join().is_err()
        {
            log::error!("the thread that makes boxes ahead panicked");
        }
        // With the preparer gone its boxes are dying; whatever was ready is reaped with the policy.
    }
}
