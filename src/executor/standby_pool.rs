//! The standby pool: a thread prepares sandboxes before runs ask for them.
//!
//! A sandbox dies with the thread that cloned it. The preparer thread therefore lives until the
//! pool is dropped, when no run uses one of its sandboxes any more.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, available_parallelism, current};
use std::time::{Duration, Instant};

use crate::executor::factory::{ReadySandbox, SandboxFactory};
use crate::executor::pool_key::PoolKey;
use crate::executor::pool_policy::{PoolAction, PoolPolicy, PoolTake, PrepareResult, SHORT};
use cofferdam_core::sync::counter::Counter;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{SetupFailure, StandbyMetrics};

/// How long a run waits for a sandbox in preparation. Creating its own takes no longer.
const PREPARE_WAIT: Duration = Duration::from_millis(10);

/// The prepared sandboxes and the thread that prepares them.
#[derive(Debug)]
pub struct StandbyPool {
    shared: Arc<PoolShared>,
    preparer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct PoolShared {
    factory: Arc<SandboxFactory>,
    prepared_max: usize,
    counts: PoolCounts,
    state: Mutex<PoolState>,
    /// Wakes the preparer.
    work: Condvar,
    /// Wakes runs that wait for a sandbox, and who waits for the preparer.
    prepared: Condvar,
}

#[derive(Debug)]
struct PoolState {
    policy: PoolPolicy<ReadySandbox>,
    /// When the preparer wakes without a notification.
    wakes_at: Option<Instant>,
    /// Whether the preparer must end.
    stopping: bool,
    /// How many actions the preparer has begun, and ended.
    actions: [u64; 2],
}

/// Counts prepared sandboxes since the start.
#[derive(Debug, Default)]
struct PoolCounts {
    made: Counter,
    used: Counter,
    dropped: Counter,
    failed: Counter,
}

/// A live run of one key; dropped when the run ends.
#[derive(Debug)]
pub struct LiveRun {
    shared: Arc<PoolShared>,
    key: Arc<PoolKey>,
    began: Instant,
}

impl StandbyPool {
    /// Starts a pool of at most `prepared_max` sandboxes of `factory`.
    pub fn start(factory: Arc<SandboxFactory>, prepared_max: usize) -> Result<Self, SetupFailure> {
        let cpus = available_parallelism().map_or(1, usize::from);
        let policy = PoolPolicy::new(prepared_max, cpus);
        let shared = Arc::new(PoolShared {
            factory,
            prepared_max,
            counts: PoolCounts::default(),
            state: Mutex::new(PoolState {
                policy,
                wakes_at: None,
                stopping: false,
                actions: [0; 2],
            }),
            work: Condvar::new(),
            prepared: Condvar::new(),
        });
        let preparer = Builder::new().name("standby".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.prepare_and_discard()
        });
        let preparer = preparer.map_err(|error| SetupFailure::from_io("standby thread", &error))?;
        Ok(Self { shared, preparer: Some(preparer) })
    }

    /// Records that a run of `key` begins, which makes the pool prepare sandboxes for that key.
    pub fn begin(&self, key: PoolKey) -> LiveRun {
        let (key, began) = (Arc::new(key), Instant::now());
        let mut state = self.shared.lock();
        let outdated = state.policy.begin(&key, began);
        self.shared.wake_preparer(state, began);
        // Killing and reaping take time: done without the lock.
        self.shared.discard(outdated);
        LiveRun { shared: Arc::clone(&self.shared), key, began }
    }

    /// The current counters.
    pub fn metrics(&self) -> StandbyMetrics {
        let PoolShared { prepared_max, counts, .. } = &*self.shared;
        StandbyMetrics {
            sandboxes_max: *prepared_max,
            ready: self.shared.lock().policy.ready(),
            made: counts.made.get(),
            used: counts.used.get(),
            dropped: counts.dropped.get(),
            failed: counts.failed.get(),
        }
    }

    /// Discards the sandboxes of a mounted workspace that is gone. One that is in preparation is
    /// discarded by the preparer.
    pub fn forget(&self, workspace: u64) {
        let unused = self.shared.lock().policy.forget(|key| key.is_of_workspace(workspace));
        self.shared.discard(unused);
    }

    /// Discards the sandboxes of a mounted workspace that gives no mounts now, so that the preparer
    /// prepares no other. Returns false if that takes longer than `deadline`.
    pub fn discard(&self, workspace: u64, deadline: Deadline) -> bool {
        // The preparer may be about to have one, or kill one.
        let is_prepared = self.wait_preparer(deadline);
        let unused = self.shared.lock().policy.clear_all(|key| key.is_of_workspace(workspace));
        self.shared.discard(unused);
        // It prepares others when there are mounts again.
        self.shared.work.notify_one();
        is_prepared && self.wait_preparer(deadline)
    }

    /// Waits for the sandboxes that the preparer prepares or discards now. Returns false if that takes
    /// longer than `deadline`.
    fn wait_preparer(&self, deadline: Deadline) -> bool {
        let mut state = self.shared.lock();
        let [begun, _] = state.actions;
        while state.actions[1] < begun {
            if deadline.passed() {
                return false;
            }
            state = wait(&self.shared.prepared, state, Some(deadline.remaining()));
        }
        true
    }

    /// Discards every sandbox and prepares no more.
    pub fn close(&self) {
        self.shared.lock().policy.close();
        self.shared.work.notify_one();
    }
}

impl LiveRun {
    /// A sandbox for this run, if one is ready or about to be.
    pub fn take(&self) -> Option<ReadySandbox> {
        let shared = &self.shared;
        loop {
            let ready = shared.take(&self.key)?;
            // Reads files: done without the lock.
            match shared.factory.is_current(&ready) {
                Ok(true) => {
                    shared.counts.used.increment();
                    return Some(ready);
                }
                Ok(false) => log::info!("discarding an outdated prepared sandbox"),
                Err(failure) => log::warn!("discarding a prepared sandbox: {failure}"),
            }
            self.discard_others();
            shared.discard([ready]);
        }
    }

    /// Discards the other sandboxes of the key after one was dead or outdated: they may be too.
    pub fn discard_others(&self) {
        let others = self.shared.lock().policy.clear(&self.key);
        self.shared.discard(others);
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        let (shared, now) = (&self.shared, Instant::now());
        let mut state = shared.lock();
        state.policy.end(&self.key, self.began, now);
        shared.wake_preparer(state, now);
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the preparer, unless it wakes soon by itself. Waking it at the begin and end of each
    /// run would cost the runs more than a slightly later prepared sandbox.
    fn wake_preparer(&self, state: MutexGuard<'_, PoolState>, now: Instant) {
        let sleeps = state.wakes_at.is_none_or(|at| at > now + SHORT);
        // Else it would wake and wait for the lock.
        drop(state);
        if sleeps {
            self.work.notify_one();
        }
    }

    /// Kills and reaps unused sandboxes.
    fn discard(&self, sandboxes: impl IntoIterator<Item = ReadySandbox>) {
        for unused in sandboxes {
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
                    state = wait(&self.prepared, state, Some(deadline.remaining()));
                }
                PoolTake::InPreparation | PoolTake::Nothing => return None,
            }
        }
    }

    /// The loop of the preparer thread.
    fn prepare_and_discard(&self) {
        let mut state = self.lock();
        while !state.stopping {
            let now = Instant::now();
            state.wakes_at = Some(now);
            let action = state.policy.next(now);
            state.actions[0] += 1;
            match action {
                PoolAction::Wait(until) => {
                    state.actions[1] += 1;
                    state.wakes_at = until;
                    let at_most = until.map(|until| until.saturating_duration_since(now));
                    state = wait(&self.work, state, at_most);
                }
                PoolAction::Discard(sandboxes) => {
                    drop(state);
                    self.discard(sandboxes);
                    state = self.end_action();
                }
                PoolAction::Prepare(key) => {
                    drop(state);
                    let result = self.prepare(&key);
                    state = self.lock();
                    let unwanted = state.policy.prepared(&key, result, Instant::now());
                    drop(state);
                    self.prepared.notify_all();
                    self.discard(unwanted);
                    state = self.end_action();
                }
            }
        }
    }

    fn end_action(&self) -> MutexGuard<'_, PoolState> {
        let mut state = self.lock();
        state.actions[1] += 1;
        self.prepared.notify_all();
        state
    }

    fn prepare(&self, key: &PoolKey) -> PrepareResult<ReadySandbox> {
        match self.factory.prepare(key) {
            Ok(Some(ready)) => {
                self.counts.made.increment();
                PrepareResult::Prepared(ready)
            }
            Ok(None) => PrepareResult::Unsettled,
            Err(failure) => {
                log::warn!("cannot prepare a sandbox: {failure}");
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
        // The preparer itself drops the pool if it held the last workspace of the service.
        let other = |preparer: &JoinHandle<()>| preparer.thread().id() != current().id();
        if let Some(preparer) = self.preparer.take().filter(other)
            && preparer.join().is_err()
        {
            log::error!("the thread that prepares sandboxes panicked");
        }
        // The sandboxes die with the preparer; dropping the policy reaps them.
    }
}
