//! The standby pool: a thread prepares sandboxes before runs ask for them.
//!
//! A sandbox dies with the thread that cloned it. The preparer thread therefore lives until the
//! pool is dropped, when no run uses one of its sandboxes any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, available_parallelism, current};
use std::time::{Duration, Instant};

use crate::executor::pool_key::PoolKey;
use crate::executor::pool_policy::{PoolAction, PoolPolicy, PoolTake, PrepareResult, SHORT};
use crate::executor::supply::{ColdSupply, Supply};
use cofferdam_core::sync::counter::Counter;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{SetupFailure, StandbyMetrics, WarmSandboxes};

/// The prepared sandboxes and the thread that prepares them.
#[derive(Debug)]
pub struct StandbyPool<S: Supply = ColdSupply> {
    shared: Arc<PoolShared<S>>,
    preparer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct PoolShared<S: Supply> {
    supply: S,
    prepared_max: usize,
    counts: PoolCounts,
    state: Mutex<PoolState<S::Sandbox>>,
    /// Wakes the preparer.
    work: Condvar,
    /// Wakes runs that wait for a sandbox, and who waits for the preparer.
    prepared: Condvar,
}

#[derive(Debug)]
struct PoolState<B> {
    policy: PoolPolicy<B>,
    /// When the preparer wakes without a notification.
    wakes_at: Option<Instant>,
    /// Whether the preparer must end.
    stopping: bool,
    /// How many actions the preparer has begun, and ended.
    actions: [u64; 2],
    /// What it prepares a sandbox for.
    preparing: Option<Arc<PoolKey>>,
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
pub struct LiveRun<S: Supply = ColdSupply> {
    shared: Arc<PoolShared<S>>,
    key: Arc<PoolKey>,
    began: Instant,
}

impl<S: Supply> StandbyPool<S> {
    /// Starts a pool of at most `prepared_max` sandboxes of `supply`.
    pub fn start(supply: S, prepared_max: usize) -> Result<Self, SetupFailure> {
        let cpus = available_parallelism().map_or(1, usize::from);
        let policy = supply.bounded(PoolPolicy::new(prepared_max, cpus));
        let shared = Arc::new(PoolShared {
            supply,
            prepared_max,
            counts: PoolCounts::default(),
            state: Mutex::new(PoolState {
                policy,
                wakes_at: None,
                stopping: false,
                actions: [0; 2],
                preparing: None,
            }),
            work: Condvar::new(),
            prepared: Condvar::new(),
        });
        let preparer = Builder::new().name(S::THREAD.to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.prepare_and_discard()
        });
        let preparer = preparer.map_err(|error| SetupFailure::from_io("standby thread", &error))?;
        Ok(Self { shared, preparer: Some(preparer) })
    }

    /// Records that a run of `key` begins, which makes the pool prepare sandboxes for that key.
    pub fn begin(&self, key: PoolKey) -> LiveRun<S> {
        let (key, began) = (Arc::new(key), Instant::now());
        let mut state = self.shared.lock();
        let outdated = state.policy.begin(&key, began);
        self.shared.wake_preparer(state, began);
        // Killing and reaping take time: done without the lock.
        self.shared.discard(outdated);
        LiveRun { shared: Arc::clone(&self.shared), key, began }
    }

    /// Prepares a sandbox for a run of `key`, which is expected.
    pub fn expect(&self, key: PoolKey) {
        let now = Instant::now();
        let mut state = self.shared.lock();
        state.policy.expect(&Arc::new(key), now);
        self.shared.wake_preparer(state, now);
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

    /// What the sandboxes come from.
    pub fn supply(&self) -> &S {
        &self.shared.supply
    }

    /// The sandboxes that are ready, by the label of their key.
    pub fn holdings(&self) -> Vec<WarmSandboxes> {
        let mut by_label: BTreeMap<String, WarmSandboxes> = BTreeMap::new();
        for (key, count, bytes) in self.shared.lock().policy.holdings() {
            let label = key.label().unwrap_or_default();
            let held = by_label.entry(label.to_owned()).or_default();
            label.clone_into(&mut held.label);
            held.count += count;
            held.bytes = held.bytes.saturating_add(bytes);
        }
        by_label.into_values().collect()
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
        let is_prepared = self.wait_preparer(workspace, deadline);
        let unused = self.shared.lock().policy.clear_all(|key| key.is_of_workspace(workspace));
        self.shared.discard(unused);
        // It prepares others when there are mounts again.
        self.shared.work.notify_one();
        is_prepared && self.wait_preparer(workspace, deadline)
    }

    /// Waits for the sandboxes that the preparer prepares or discards now, unless it prepares one of
    /// another workspace. Returns false if that takes longer than `deadline`.
    fn wait_preparer(&self, workspace: u64, deadline: Deadline) -> bool {
        let is_of_another = |state: &PoolState<S::Sandbox>| {
            state.preparing.as_ref().is_some_and(|key| !key.is_of_workspace(workspace))
        };
        let mut state = self.shared.lock();
        let [begun, _] = state.actions;
        while state.actions[1] < begun && !is_of_another(&state) {
            if deadline.passed() {
                return false;
            }
            state = wait(&self.shared.prepared, state, Some(deadline.remaining()));
        }
        true
    }

    /// Discards every sandbox and prepares no more.
    pub fn close(&self) {
        self.shared.supply.stop();
        self.shared.lock().policy.close();
        self.shared.work.notify_one();
    }
}

impl<S: Supply> LiveRun<S> {
    /// A sandbox for this run, if one is ready or about to be.
    pub fn take(&self) -> Option<S::Sandbox> {
        let shared = &self.shared;
        loop {
            let ready = shared.take(&self.key)?;
            // Reads files: done without the lock.
            match shared.supply.is_current(&ready) {
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

impl<S: Supply> Drop for LiveRun<S> {
    fn drop(&mut self) {
        let (shared, now) = (&self.shared, Instant::now());
        let mut state = shared.lock();
        state.policy.end(&self.key, self.began, now);
        shared.wake_preparer(state, now);
    }
}

impl<S: Supply> PoolShared<S> {
    fn lock(&self) -> MutexGuard<'_, PoolState<S::Sandbox>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the preparer, unless it wakes soon by itself. Waking it at the begin and end of each
    /// run would cost the runs more than a slightly later prepared sandbox.
    fn wake_preparer(&self, state: MutexGuard<'_, PoolState<S::Sandbox>>, now: Instant) {
        let sleeps = state.wakes_at.is_none_or(|at| at > now + SHORT);
        // Else it would wake and wait for the lock.
        drop(state);
        if sleeps {
            self.work.notify_one();
        }
    }

    /// Kills and reaps unused sandboxes.
    fn discard(&self, sandboxes: impl IntoIterator<Item = S::Sandbox>) {
        for unused in sandboxes {
            drop(unused);
            self.counts.dropped.increment();
        }
    }

    fn take(&self, key: &PoolKey) -> Option<S::Sandbox> {
        let deadline = Deadline::after(S::TAKE_WAIT);
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
                    let bytes_left = state.policy.bytes_left();
                    state.preparing = Some(Arc::clone(&key));
                    drop(state);
                    let result = self.prepare(&key, bytes_left);
                    state = self.lock();
                    if let PrepareResult::Prepared(ready) = &result {
                        state.policy.weigh(&key, S::bytes(ready));
                    }
                    let unwanted = state.policy.prepared(&key, result, Instant::now());
                    drop(state);
                    self.prepared.notify_all();
                    self.discard(unwanted);
                    state = self.end_action();
                }
            }
        }
    }

    fn end_action(&self) -> MutexGuard<'_, PoolState<S::Sandbox>> {
        let mut state = self.lock();
        state.actions[1] += 1;
        state.preparing = None;
        self.prepared.notify_all();
        state
    }

    fn prepare(&self, key: &PoolKey, bytes_left: u64) -> PrepareResult<S::Sandbox> {
        let result = self.supply.prepare(key, bytes_left);
        match &result {
            PrepareResult::Prepared(_) => self.counts.made.increment(),
            PrepareResult::Failed | PrepareResult::TooLarge(_) => self.counts.failed.increment(),
            PrepareResult::Unsettled => {}
        }
        result
    }
}

fn wait<'a, B>(
    condition: &Condvar,
    state: MutexGuard<'a, PoolState<B>>,
    at_most: Option<Duration>,
) -> MutexGuard<'a, PoolState<B>> {
    match at_most {
        Some(at_most) => {
            let waited = condition.wait_timeout(state, at_most);
            waited.unwrap_or_else(PoisonError::into_inner).0
        }
        None => condition.wait(state).unwrap_or_else(PoisonError::into_inner),
    }
}

impl<S: Supply> Drop for StandbyPool<S> {
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
