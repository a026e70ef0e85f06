//! Decides which sandboxes to prepare and which to discard. Pure: the caller passes the time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::executor::pool_key::PoolKey;

/// The scheduler gives an older run less CPU time, so it does not stop the pool from preparing
/// sandboxes.
const YOUNG: Duration = Duration::from_secs(1);
/// Nothing is prepared while a run is younger: it may end before a sandbox is prepared.
pub const SHORT: Duration = Duration::from_millis(5);
/// Nothing is prepared for this long after a run ended, while its answer is sent.
const ANSWERING: Duration = Duration::from_micros(500);
/// How long to wait after a failure before preparing for the same key again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// The same, if the template has just changed.
const UNSETTLED_RETRY_AFTER: Duration = Duration::from_millis(50);
/// How many keys without sandboxes are remembered.
const REMEMBERED_MAX: usize = 64;

/// The prepared sandboxes and the demand for them, by key. `S` is a sandbox.
#[derive(Debug)]
pub struct PoolPolicy<S> {
    buckets: Vec<Bucket<S>>,
    /// When each live run began.
    live: Vec<Instant>,
    ended_at: Option<Instant>,
    prepared_max: usize,
    bytes_max: u64,
    retry_after: Duration,
    cpus: usize,
    closed: bool,
}

#[derive(Debug)]
struct Bucket<S> {
    key: Arc<PoolKey>,
    ready: VecDeque<S>,
    /// The memory of one sandbox that counts, as far as is known.
    bytes: u64,
    in_preparation: usize,
    /// Runs of the key so far.
    runs: usize,
    /// Live runs of the key.
    live: usize,
    /// The most concurrent runs since the key was last idle.
    live_peak: usize,
    used_at: Instant,
    not_before: Instant,
}

/// What the preparer does next.
#[derive(Debug)]
pub enum PoolAction<S> {
    /// Prepare a sandbox, then call [`PoolPolicy::prepared`].
    Prepare(Arc<PoolKey>),
    /// Discard these.
    Discard(Vec<S>),
    /// Wait for a notification, or until that time.
    Wait(Option<Instant>),
}

/// The result of preparing a sandbox.
#[derive(Debug)]
pub enum PrepareResult<S> {
    /// The sandbox.
    Prepared(S),
    /// The template is changing.
    Unsettled,
    /// It failed.
    Failed,
    /// It failed because it needs at least so much memory, in bytes.
    TooLarge(u64),
}

/// What the pool has for a run.
#[derive(Debug)]
pub enum PoolTake<S> {
    /// A prepared sandbox.
    Prepared(S),
    /// A sandbox that is not ready yet.
    InPreparation,
    /// No sandbox.
    Nothing,
}

impl<S> PoolPolicy<S> {
    /// A policy for at most `prepared_max` sandboxes on a host with `cpus` CPUs.
    pub fn new(prepared_max: usize, cpus: usize) -> Self {
        Self {
            buckets: Vec::new(),
            live: Vec::new(),
            ended_at: None,
            prepared_max,
            bytes_max: u64::MAX,
            retry_after: RETRY_AFTER,
            cpus,
            closed: false,
        }
    }

    /// Bounds the memory of all sandboxes together, and sets how long to wait after a failure.
    pub fn bounded(self, bytes_max: u64, retry_after: Duration) -> Self {
        Self { bytes_max, retry_after, ..self }
    }

    /// A run of `key` begins. Returns the sandboxes that are outdated by it.
    pub fn begin(&mut self, key: &Arc<PoolKey>, now: Instant) -> Vec<S> {
        self.live.push(now);
        let outdated = self.take_buckets(|bucket| bucket.key.is_outdated_by(key));
        let bucket = self.bucket_for(key, now);
        bucket.runs += 1;
        bucket.live += 1;
        bucket.live_peak = bucket.live_peak.max(bucket.live);
        bucket.used_at = now;
        outdated
    }

    /// A run of `key` is expected.
    pub fn expect(&mut self, key: &Arc<PoolKey>, now: Instant) {
        let bucket = self.bucket_for(key, now);
        bucket.live_peak = bucket.live_peak.max(1);
        bucket.used_at = now;
    }

    /// A run of `key` that began at `began` has ended.
    pub fn end(&mut self, key: &PoolKey, began: Instant, now: Instant) {
        self.ended_at = Some(now);
        if let Some(index) = self.live.iter().position(|at| *at == began) {
            self.live.swap_remove(index);
        }
        if let Some(bucket) = self.find(key) {
            bucket.live = bucket.live.saturating_sub(1);
        }
    }

    /// Takes a sandbox for a run of `key`, the oldest first.
    pub fn take(&mut self, key: &PoolKey) -> PoolTake<S> {
        let Some(bucket) = self.find(key) else { return PoolTake::Nothing };
        match bucket.ready.pop_front() {
            Some(ready) => PoolTake::Prepared(ready),
            None if bucket.in_preparation > 0 => PoolTake::InPreparation,
            None => PoolTake::Nothing,
        }
    }

    /// Takes every sandbox of `key`. Others are prepared in their place.
    pub fn clear(&mut self, key: &PoolKey) -> Vec<S> {
        self.find(key).map(|bucket| bucket.ready.drain(..).collect()).unwrap_or_default()
    }

    /// As [`PoolPolicy::clear`], for these keys.
    pub fn clear_all(&mut self, goes: impl Fn(&PoolKey) -> bool) -> Vec<S> {
        let cleared = self.buckets.iter_mut().filter(|bucket| goes(&bucket.key));
        cleared.flat_map(|bucket| bucket.ready.drain(..)).collect()
    }

    /// Takes every sandbox of these keys. No other is prepared before the next run.
    pub fn forget(&mut self, goes: impl Fn(&PoolKey) -> bool) -> Vec<S> {
        self.take_buckets(|bucket| goes(&bucket.key))
    }

    /// Prepares no more sandboxes, and discards the existing ones.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// How many sandboxes are ready, over all keys.
    pub fn ready(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.ready.len()).sum()
    }

    /// The memory of the sandboxes that are ready, over all keys.
    pub fn bytes(&self) -> u64 {
        self.buckets.iter().map(Bucket::bytes).sum()
    }

    /// The memory that is left for the next sandbox.
    pub fn bytes_left(&self) -> u64 {
        self.bytes_max.saturating_sub(self.bytes())
    }

    /// How many sandboxes of each key are ready, and their memory.
    pub fn holdings(&self) -> impl Iterator<Item = (&PoolKey, usize, u64)> {
        let held = self.buckets.iter().filter(|bucket| !bucket.ready.is_empty());
        held.map(|bucket| (&*bucket.key, bucket.ready.len(), bucket.bytes()))
    }

    /// What the preparer does at `now`.
    pub fn next(&mut self, now: Instant) -> PoolAction<S> {
        let mut discarded = self.take_buckets(|bucket| is_idle(bucket, now));
        if self.closed {
            discarded.extend(self.take_buckets(|_| true));
            return if discarded.is_empty() {
                PoolAction::Wait(None)
            } else {
                PoolAction::Discard(discarded)
            };
        }
        if !discarded.is_empty() {
            return PoolAction::Discard(discarded);
        }
        if self.has_time(now)
            && let Some(wanted) = self.most_wanted(now)
        {
            if self.ready() < self.prepared_max && self.has_room(wanted) {
                return self.prepare(wanted);
            }
            if let Some(unneeded) = self.least_used_but(wanted) {
                return PoolAction::Discard(vec![unneeded]);
            }
        }
        PoolAction::Wait(self.next_wake(now))
    }

    /// Takes the result of a [`PoolAction::Prepare`]. Returns the sandbox if it is no longer
    /// needed.
    pub fn prepared(&mut self, key: &PoolKey, result: PrepareResult<S>, now: Instant) -> Option<S> {
        let (closed, retry_after) = (self.closed, self.retry_after);
        let Some(bucket) = self.find(key) else {
            return if let PrepareResult::Prepared(ready) = result { Some(ready) } else { None };
        };
        bucket.in_preparation = bucket.in_preparation.saturating_sub(1);
        match result {
            PrepareResult::Prepared(ready) if closed || bucket.live_peak == 0 => {
                return Some(ready);
            }
            PrepareResult::Prepared(ready) => bucket.ready.push_back(ready),
            PrepareResult::Unsettled => bucket.not_before = now + UNSETTLED_RETRY_AFTER,
            PrepareResult::Failed => bucket.not_before = now + retry_after,
            PrepareResult::TooLarge(bytes) => {
                bucket.bytes = bytes.max(bucket.bytes);
                bucket.not_before = now + retry_after;
            }
        }
        None
    }

    /// Notes the memory of one sandbox of `key`, in bytes.
    pub fn weigh(&mut self, key: &PoolKey, bytes: u64) {
        if let Some(bucket) = self.find(key) {
            // Those that are ready count as much as the largest.
            bucket.bytes = if bucket.ready.is_empty() { bytes } else { bytes.max(bucket.bytes) };
        }
    }

    /// Whether a sandbox like the last one of the key at `index` fits into the memory that is left.
    fn has_room(&self, index: usize) -> bool {
        let bytes = self.buckets.get(index).map_or(0, |bucket| bucket.bytes);
        bytes <= self.bytes_left()
    }

    /// Whether preparing a sandbox slows down no live run.
    fn has_time(&self, now: Instant) -> bool {
        let younger_than = |age: Duration| {
            self.live.iter().filter(|began| now.duration_since(**began) < age).count()
        };
        let answering = self.ended_at.is_some_and(|at| now.duration_since(at) < ANSWERING);
        !answering && younger_than(SHORT) == 0 && younger_than(YOUNG) < self.cpus
    }

    fn find(&mut self, key: &PoolKey) -> Option<&mut Bucket<S>> {
        self.buckets.iter_mut().find(|bucket| *bucket.key == *key)
    }

    fn bucket_for(&mut self, key: &Arc<PoolKey>, now: Instant) -> &mut Bucket<S> {
        let known = self.buckets.iter().position(|bucket| bucket.key == *key);
        let index = known.unwrap_or_else(|| {
            self.forget_one();
            self.buckets.push(Bucket {
                key: Arc::clone(key),
                ready: VecDeque::new(),
                in_preparation: 0,
                runs: 0,
                bytes: 0,
                live: 0,
                live_peak: 0,
                used_at: now,
                not_before: now,
            });
            self.buckets.len() - 1
        });
        &mut self.buckets[index]
    }

    /// Makes room for one more key.
    fn forget_one(&mut self) {
        if self.buckets.len() < REMEMBERED_MAX + self.prepared_max {
            return;
        }
        let bare = self.buckets.iter().enumerate().filter(|(_, bucket)| {
            bucket.ready.is_empty() && bucket.in_preparation == 0 && bucket.live == 0
        });
        if let Some((index, _)) = bare.min_by_key(|(_, bucket)| bucket.used_at) {
            self.buckets.swap_remove(index);
        }
    }

    fn prepare(&mut self, index: usize) -> PoolAction<S> {
        let Some(bucket) = self.buckets.get_mut(index) else { return PoolAction::Wait(None) };
        bucket.in_preparation += 1;
        PoolAction::Prepare(Arc::clone(&bucket.key))
    }

    /// The most recently used key that has fewer sandboxes than concurrent runs.
    fn most_wanted(&self, now: Instant) -> Option<usize> {
        let wanted = self.buckets.iter().enumerate().filter(|(_, bucket)| {
            let wanted = bucket.key.wanted(bucket.runs, bucket.live_peak);
            let fits = bucket.bytes <= self.bytes_max;
            bucket.ready.len() < wanted && bucket.not_before <= now && fits
        });
        wanted.max_by_key(|(_, bucket)| bucket.used_at).map(|(index, _)| index)
    }

    /// A sandbox of the least recently used key, if that was used before the key at `index`.
    fn least_used_but(&mut self, index: usize) -> Option<S> {
        let used_at = self.buckets.get(index)?.used_at;
        let others = self.buckets.iter_mut().filter(|bucket| !bucket.ready.is_empty());
        let least = others.min_by_key(|bucket| bucket.used_at)?;
        if least.used_at >= used_at {
            return None;
        }
        least.live_peak = least.live_peak.saturating_sub(1);
        least.ready.pop_front()
    }

    /// Removes the matching buckets and returns their sandboxes. A bucket with a live run stays,
    /// without its sandboxes.
    fn take_buckets(&mut self, goes: impl Fn(&Bucket<S>) -> bool) -> Vec<S> {
        let mut sandboxes = Vec::new();
        self.buckets.retain_mut(|bucket| {
            let goes = goes(bucket);
            if goes {
                sandboxes.extend(bucket.ready.drain(..));
                bucket.live_peak = 0;
            }
            !goes || bucket.live > 0 || bucket.in_preparation > 0
        });
        sandboxes
    }

    /// When a change is due: a run passes an age, a bucket becomes idle, a retry is allowed.
    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let idle = self.buckets.iter().map(|bucket| bucket.used_at + bucket.key.unused_max());
        let again = self.buckets.iter().map(|bucket| bucket.not_before);
        let time = if self.has_time(now) { None } else { self.next_time() };
        time.into_iter().chain(idle).chain(again).filter(|at| *at > now).min()
    }

    /// When [`PoolPolicy::has_time`] becomes true if no run begins or ends until then. The
    /// preparer wakes once for it, not once per run.
    fn next_time(&self) -> Option<Instant> {
        let answered = self.ended_at.map(|ended| ended + ANSWERING);
        let mut live = self.live.clone();
        live.sort_unstable();
        let short = live.last().map(|youngest| *youngest + SHORT);
        // Fewer runs than CPUs may be young: the oldest beyond that has to pass the age.
        let old = live.len().checked_sub(self.cpus).and_then(|index| live.get(index));
        let old = old.map(|began| *began + YOUNG);
        [answered, short, old].into_iter().flatten().max()
    }
}

impl<S> Bucket<S> {
    fn bytes(&self) -> u64 {
        self.bytes.saturating_mul(self.ready.len() as u64)
    }
}

fn is_idle<S>(bucket: &Bucket<S>, now: Instant) -> bool {
    bucket.live == 0 && now.duration_since(bucket.used_at) >= bucket.key.unused_max()
}
