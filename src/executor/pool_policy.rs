//! Which boxes are to be made ahead, and which are to go (pure: times come from outside).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::executor::pool_key::PoolKey;

/// A run that has lasted longer stands back where CPUs are short, and so is no
/// reason not to make boxes ahead.
const YOUNG: Duration = Duration::from_secs(1);
/// A run that has not lasted as long is left alone: it may be over before a box is made.
pub const SHORT: Duration = Duration::from_millis(5);
/// So long after a run has ended nothing is made: its answer is on the way.
const ANSWERING: Duration = Duration::from_micros(500);
/// SandboxFactory of a key that nobody has asked for in so long are let go.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// Before a key that no box could be made from is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Before one is whose template has just changed.
const UNSETTLED_RETRY_AFTER: Duration = Duration::from_millis(50);
/// Blueprints that are remembered beside those that have boxes.
const REMEMBERED_MAX: usize = 64;

/// What is ready and wanted, by key. `B` is a box.
#[derive(Debug)]
pub struct PoolPolicy<B> {
    policy: Vec<Bucket<B>>,
    /// When each live run began.
    live: Vec<Instant>,
    ended_at: Option<Instant>,
    prepared_max: usize,
    cpus: usize,
    closed: bool,
}

#[derive(Debug)]
struct Bucket<B> {
    key: Arc<PoolKey>,
    ready: VecDeque<B>,
    in_preparation: usize,
    /// Runs of it that are live.
    live: usize,
    /// The most of them at once since it was last idle.
    live_peak: usize,
    used_at: Instant,
    not_before: Instant,
}

/// What the preparer is to do next.
#[derive(Debug)]
pub enum PoolAction<B> {
    /// Make a box, and [`PoolPolicy::made`] it.
    Make(Arc<PoolKey>),
    /// Let go of these.
    Discard(Vec<B>),
    /// Nothing until somebody says so or that time has come.
    Wait(Option<Instant>),
}

/// How making a box went.
#[derive(Debug)]
pub enum PrepareResult<B> {
    /// It stands.
    Prepared(B),
    /// Its template is being changed.
    Unsettled,
    /// It cannot be made.
    Failed,
}

/// What there is for a run.
#[derive(Debug)]
pub enum PoolTake<B> {
    /// A box.
    Prepared(B),
    /// One is being made.
    InPreparation,
    /// None.
    Nothing,
}

impl<B> PoolPolicy<B> {
    /// For at most `prepared_max` boxes on a host of so many CPUs.
    pub fn new(prepared_max: usize, cpus: usize) -> Self {
        Self {
            policy: Vec::new(),
            live: Vec::new(),
            ended_at: None,
            prepared_max,
            cpus,
            closed: false,
        }
    }

    /// A run of `key` begins. Gives what it has made useless.
    pub fn begin(&mut self, key: &Arc<PoolKey>, now: Instant) -> Vec<B> {
        self.live.push(now);
        let outdated = self.take_buckets(|bucket| bucket.key.is_outdated_by(key));
        let bucket = self.bucket_for(key, now);
        bucket.live += 1;
        bucket.live_peak = bucket.live_peak.max(bucket.live);
        bucket.used_at = now;
        outdated
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

    /// What there is for a run of `key`; the longest made first.
    pub fn take(&mut self, key: &PoolKey) -> PoolTake<B> {
        let Some(bucket) = self.find(key) else { return PoolTake::Nothing };
        match bucket.ready.pop_front() {
            Some(ready) => PoolTake::Prepared(ready),
            None if bucket.in_preparation > 0 => PoolTake::InPreparation,
            None => PoolTake::Nothing,
        }
    }

    /// Takes every box of `key`, for others to be made in their places.
    pub fn clear(&mut self, key: &PoolKey) -> Vec<B> {
        self.find(key).map(|bucket| bucket.ready.drain(..).collect()).unwrap_or_default()
    }

    /// Makes no more boxes from now on, and has all of them let go.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// SandboxFactory that are ready, of all blueprints.
    pub fn ready(&self) -> usize {
        self.policy.iter().map(|bucket| bucket.ready.len()).sum()
    }

    /// What the preparer is to do at `now`.
    pub fn next(&mut self, now: Instant) -> PoolAction<B> {
        let mut discard = self.take_buckets(|bucket| is_idle(bucket, now));
        if self.closed {
            discard.extend(self.take_buckets(|_| true));
            return if discard.is_empty() {
                PoolAction::Wait(None)
            } else {
                PoolAction::Discard(discard)
            };
        }
        if !discard.is_empty() {
            return PoolAction::Discard(discard);
        }
        if self.has_time(now)
            && let Some(wanted) = self.most_wanted(now)
        {
            if self.ready() < self.prepared_max {
                return self.make(wanted);
            }
            if let Some(box_of_another) = self.least_used_but(wanted) {
                return PoolAction::Discard(vec![box_of_another]);
            }
        }
        PoolAction::Wait(self.next_wake(now))
    }

    /// A box that [`PoolAction::Make`] asked for; given back where nobody wants it any more.
    pub fn made(&mut self, key: &PoolKey, made: PrepareResult<B>, now: Instant) -> Option<B> {
        let closed = self.closed;
        let Some(bucket) = self.find(key) else {
            return if let PrepareResult::Prepared(ready) = made { Some(ready) } else { None };
        };
        bucket.in_preparation = bucket.in_preparation.saturating_sub(1);
        match made {
            PrepareResult::Prepared(ready) if closed || bucket.live_peak == 0 => {
                return Some(ready);
            }
            PrepareResult::Prepared(ready) => bucket.ready.push_back(ready),
            PrepareResult::Unsettled => bucket.not_before = now + UNSETTLED_RETRY_AFTER,
            PrepareResult::Failed => bucket.not_before = now + RETRY_AFTER,
        }
        None
    }

    /// Whether making a box takes nothing from a run that is live.
    fn has_time(&self, now: Instant) -> bool {
        let younger_than = |age: Duration| {
            self.live.iter().filter(|began| now.duration_since(**began) < age).count()
        };
        let answering = self.ended_at.is_some_and(|at| now.duration_since(at) < ANSWERING);
        !answering && younger_than(SHORT) == 0 && younger_than(YOUNG) < self.cpus
    }

    fn find(&mut self, key: &PoolKey) -> Option<&mut Bucket<B>> {
        self.policy.iter_mut().find(|bucket| *bucket.key == *key)
    }

    fn bucket_for(&mut self, key: &Arc<PoolKey>, now: Instant) -> &mut Bucket<B> {
        let known = self.policy.iter().position(|bucket| bucket.key == *key);
        let index = known.unwrap_or_else(|| {
            self.forget_one();
            self.policy.push(Bucket {
                key: Arc::clone(key),
                ready: VecDeque::new(),
                in_preparation: 0,
                live: 0,
                live_peak: 0,
                used_at: now,
                not_before: now,
            });
            self.policy.len() - 1
        });
        &mut self.policy[index]
    }

    /// Makes room for a key more.
    fn forget_one(&mut self) {
        if self.policy.len() < REMEMBERED_MAX + self.prepared_max {
            return;
        }
        let bare = self.policy.iter().enumerate().filter(|(_, bucket)| {
            bucket.ready.is_empty() && bucket.in_preparation == 0 && bucket.live == 0
        });
        if let Some((index, _)) = bare.min_by_key(|(_, bucket)| bucket.used_at) {
            self.policy.swap_remove(index);
        }
    }

    fn make(&mut self, index: usize) -> PoolAction<B> {
        let Some(bucket) = self.policy.get_mut(index) else { return PoolAction::Wait(None) };
        bucket.in_preparation += 1;
        PoolAction::Make(Arc::clone(&bucket.key))
    }

    /// The key used last of those that have fewer boxes than runs at once.
    fn most_wanted(&self, now: Instant) -> Option<usize> {
        let wanted = self.policy.iter().enumerate().filter(|(_, bucket)| {
            bucket.ready.len() < bucket.live_peak && bucket.not_before <= now
        });
        wanted.max_by_key(|(_, bucket)| bucket.used_at).map(|(index, _)| index)
    }

    /// A box of the key that was used longest ago, if before the one at `index`.
    fn least_used_but(&mut self, index: usize) -> Option<B> {
        let used_at = self.policy.get(index)?.used_at;
        let others = self.policy.iter_mut().filter(|bucket| !bucket.ready.is_empty());
        let least = others.min_by_key(|bucket| bucket.used_at)?;
        if least.used_at >= used_at {
            return None;
        }
        least.live_peak = least.live_peak.saturating_sub(1);
        least.ready.pop_front()
    }

    /// Forgets policy; gives the boxes that were on them. One with a live run
    /// stays, without its boxes.
    fn take_buckets(&mut self, goes: impl Fn(&Bucket<B>) -> bool) -> Vec<B> {
        let mut boxes = Vec::new();
        self.policy.retain_mut(|bucket| {
            let goes = goes(bucket);
            if goes {
                boxes.extend(bucket.ready.drain(..));
                bucket.live_peak = 0;
            }
            !goes || bucket.live > 0 || bucket.in_preparation > 0
        });
        boxes
    }

    /// When something changes by itself: a run grows old, a bucket idle, a failure old enough.
    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let idle = self.policy.iter().map(|bucket| bucket.used_at + IDLE_MAX);
        let again = self.policy.iter().map(|bucket| bucket.not_before);
        let time = if self.has_time(now) { None } else { self.next_time() };
        time.into_iter().chain(idle).chain(again).filter(|at| *at > now).min()
    }

    /// When [`PoolPolicy::has_time`] will be true if no run begins or ends until then:
    /// one look then, not one for each run.
    fn next_time(&self) -> Option<Instant> {
        let answered = self.ended_at.map(|ended| ended + ANSWERING);
        let mut live = self.live.clone();
        live.sort_unstable();
        let short = live.last().map(|youngest| *youngest + SHORT);
        // Of so many young runs as there are CPUs, the first has to grow old.
        let old = live.len().checked_sub(self.cpus).and_then(|index| live.get(index));
        let old = old.map(|began| *began + YOUNG);
        [answered, short, old].into_iter().flatten().max()
    }
}

fn is_idle<B>(bucket: &Bucket<B>, now: Instant) -> bool {
    bucket.live == 0 && now.duration_since(bucket.used_at) >= IDLE_MAX
}
