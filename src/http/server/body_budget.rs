//! Limits the memory that all request bodies hold while they are read.
//!
//! A body that never ends stays until its deadline, so a client with many connections could hold
//! one body per connection. If a body cannot grow, bodies that have not grown for a while are
//! evicted, the slowest first, and the body waits for its turn: bodies grow in the order in which
//! they began. A small body can always grow and evicts no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a body may pause before it can be evicted.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// How often a waiting body checks whether another one has become slow.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The memory shared by the bodies of all connections.
#[derive(Clone)]
pub struct BodyBudget(Arc<SharedBodies>);

struct SharedBodies {
    bytes_max: u64,
    held: Mutex<BodyTable>,
}

#[derive(Default)]
struct BodyTable {
    bytes: u64,
    bodies: BTreeMap<u64, OpenBody>,
    /// Bodies that wait for memory, the oldest first.
    waiting: BTreeSet<u64>,
    next: u64,
}

struct OpenBody {
    bytes: u64,
    /// When it last grew.
    grew_at: Instant,
    /// Whether the body is complete. It keeps its memory until it is parsed and is not evicted.
    is_complete: bool,
    evicted: bool,
    reader: Option<Waker>,
    /// Notified when memory may be free and it is this body's turn.
    turn: Arc<Notify>,
}

/// The memory of one body. Dropping it frees the memory.
pub struct BodyReservation {
    all: BodyBudget,
    number: u64,
    turn: Arc<Notify>,
}

impl fmt::Debug for BodyBudget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BodyBudget").field("bytes_max", &self.0.bytes_max).finish_non_exhaustive()
    }
}

impl fmt::Debug for BodyReservation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BodyReservation").field("number", &self.number).finish_non_exhaustive()
    }
}

impl BodyBudget {
    /// Allows about `bytes_max` bytes for all bodies: up to half more if all are small. A single
    /// body may have any size.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(SharedBodies { bytes_max, held: Mutex::default() }))
    }

    /// Adds a body that begins at `now`.
    pub fn enter(&self, now: Instant) -> BodyReservation {
        let mut held = self.lock();
        held.next += 1;
        let number = held.next;
        let turn = Arc::<Notify>::default();
        let body = OpenBody {
            bytes: 0,
            grew_at: now,
            is_complete: false,
            evicted: false,
            reader: None,
            turn: Arc::clone(&turn),
        };
        held.bodies.insert(number, body);
        BodyReservation { all: self.clone(), number, turn }
    }

    fn lock(&self) -> MutexGuard<'_, BodyTable> {
        // No update panics halfway.
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BodyTable {
    fn set(&mut self, number: u64, bytes: u64) {
        let Some(body) = self.bodies.get_mut(&number) else { return };
        self.bytes = self.bytes.saturating_sub(body.bytes).saturating_add(bytes);
        body.bytes = bytes;
    }

    /// Returns how many bytes a body may always reserve.
    fn small_bytes_max(&self, bytes_max: u64) -> u64 {
        bytes_max / 2 / (self.bodies.len() as u64).max(1)
    }

    /// Returns how many bytes the bodies other than `number` reserve.
    fn bytes_beside(&self, number: u64) -> u64 {
        let own = self.bodies.get(&number).map_or(0, |body| body.bytes);
        self.bytes.saturating_sub(own)
    }

    /// Grows `number` to `bytes`, or makes it wait for its turn.
    fn grow(&mut self, number: u64, bytes: u64, bytes_max: u64, now: Instant) -> bool {
        let may_grow = bytes <= self.small_bytes_max(bytes_max)
            || (self.is_turn_of(number) && self.has_room_for(number, bytes_max));
        if may_grow {
            self.waiting.remove(&number);
            self.set(number, bytes);
            if let Some(body) = self.bodies.get_mut(&number) {
                body.grew_at = now;
            }
        } else {
            self.waiting.insert(number);
        }
        may_grow
    }

    /// Returns the handle that wakes the first waiting body. The others need not wake.
    fn first_waiting(&self) -> Option<Arc<Notify>> {
        let body = self.bodies.get(self.waiting.first()?)?;
        Some(Arc::clone(&body.turn))
    }

    fn is_turn_of(&self, number: u64) -> bool {
        self.waiting.first().is_none_or(|first| *first >= number)
    }

    /// Returns whether `number` may grow when it is its turn. It may exceed the limit so that it
    /// finishes and lets others go on, and it must if all others wait for it.
    fn has_room_for(&self, number: u64, bytes_max: u64) -> bool {
        let small_bytes_max = self.small_bytes_max(bytes_max);
        let goes_on = |(other, body): (&u64, &OpenBody)| {
            *other != number
                && body.bytes > small_bytes_max
                && !body.evicted
                && !self.waiting.contains(other)
        };
        self.bytes_beside(number) <= bytes_max || !self.bodies.iter().any(goes_on)
    }

    /// Evicts the body that has not grown for the longest time, if it is slow and not `growing`,
    /// and returns its reader's waker.
    fn evict_slowest(
        &mut self,
        growing: u64,
        bytes_max: u64,
        now: Instant,
    ) -> Option<Option<Waker>> {
        let small_bytes_max = self.small_bytes_max(bytes_max);
        let is_slow = |number: &u64, body: &OpenBody| {
            *number != growing
                && body.bytes > small_bytes_max
                && !body.is_complete
                && !body.evicted
                && !self.waiting.contains(number)
                && now.saturating_duration_since(body.grew_at) >= SLOW_AFTER
        };
        let slow = self.bodies.iter().filter(|(number, body)| is_slow(number, body));
        let number = slow.min_by_key(|(_, body)| body.grew_at).map(|(number, _)| *number)?;
        self.set(number, 0);
        let body = self.bodies.get_mut(&number)?;
        body.evicted = true;
        Some(body.reader.take())
    }
}

impl BodyReservation {
    /// Waits until the body may hold `bytes` bytes.
    pub async fn reserve(&self, bytes: usize) {
        loop {
            if self.try_reserve(bytes as u64, Instant::now()) {
                return;
            }
            let turn = self.turn.notified();
            if self.all.lock().is_turn_of(self.number) {
                // Times out because nothing signals that another body has become slow.
                let _ = timeout(LOOK_EVERY, turn).await;
            } else {
                turn.await;
            }
        }
    }

    fn try_reserve(&self, bytes: u64, now: Instant) -> bool {
        let (bytes_max, mut held) = (self.all.0.bytes_max, self.all.lock());
        let mut readers = Vec::new();
        // Evicts each body at most once. Bodies that wait are never slow.
        while held.is_turn_of(self.number)
            && held.bytes_beside(self.number).saturating_add(bytes) > bytes_max
        {
            match held.evict_slowest(self.number, bytes_max, now) {
                Some(reader) => readers.extend(reader),
                None => break,
            }
        }
        let was_waiting = held.waiting.contains(&self.number);
        let may_grow = held.grow(self.number, bytes, bytes_max, now);
        let next = held.first_waiting().filter(|_| may_grow && was_waiting);
        drop(held);
        readers.into_iter().for_each(Waker::wake);
        next.iter().for_each(|next| next.notify_one());
        may_grow
    }

    /// Marks the body as complete.
    pub fn mark_complete(&self) {
        if let Some(body) = self.all.lock().bodies.get_mut(&self.number) {
            body.is_complete = true;
            body.reader = None;
        }
    }

    /// Runs `reading`. Returns `None` if the body is evicted first.
    pub async fn unless_evicted<T>(&self, reading: impl Future<Output = T>) -> Option<T> {
        let mut reading = pin!(reading);
        poll_fn(|cx| {
            if self.is_evicted(cx.waker()) {
                return Poll::Ready(None);
            }
            reading.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// Returns whether the body is evicted; `reader` is woken when that changes.
    fn is_evicted(&self, reader: &Waker) -> bool {
        let mut held = self.all.lock();
        let Some(body) = held.bodies.get_mut(&self.number) else { return true };
        if !body.reader.as_ref().is_some_and(|known| known.will_wake(reader)) {
            body.reader = Some(reader.clone());
        }
        body.evicted
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        let mut held = self.all.lock();
        held.set(self.number, 0);
        held.bodies.remove(&self.number);
        held.waiting.remove(&self.number);
        let next = held.first_waiting();
        drop(held);
        next.iter().for_each(|next| next.notify_one());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evicted(rooms: &[&BodyReservation]) -> Vec<bool> {
        rooms.iter().map(|room| room.is_evicted(Waker::noop())).collect()
    }

    #[test]
    fn the_slowest_large_body_is_evicted_and_small_ones_stay() {
        let (all, start) = (BodyBudget::new(100), Instant::now());
        let second = |n| start + Duration::from_secs(n);
        let [small, first, slow, next] = [(); 4].map(|()| all.enter(start));
        assert!(small.try_reserve(10, start) && first.try_reserve(40, start));
        assert!(slow.try_reserve(40, start) && first.try_reserve(50, second(1)), "100 are not 101");
        assert!(next.try_reserve(12, second(1)), "small bodies always grow");
        // The memory is full, and only one body has been slow for long enough.
        assert!(next.try_reserve(50, second(1)));
        assert_eq!(evicted(&[&small, &first, &slow, &next]), [false, false, true, false]);
    }

    #[test]
    fn without_slow_bodies_the_oldest_grows_first() {
        let (all, now) = (BodyBudget::new(100), Instant::now());
        let [first, second, third, fourth] = [(); 4].map(|()| all.enter(now));
        assert!(
            first.try_reserve(60, now) && second.try_reserve(60, now),
            "one may exceed the limit"
        );
        assert!(!third.try_reserve(60, now) && !fourth.try_reserve(60, now));
        drop(first);
        assert!(!fourth.try_reserve(60, now), "an older body waits");
        assert!(third.try_reserve(60, now) && !fourth.try_reserve(60, now));
        drop(second);
        assert!(fourth.try_reserve(60, now));
        assert_eq!(evicted(&[&third, &fourth]), [false, false]);
    }

    #[test]
    fn bodies_that_all_wait_go_on() {
        let (all, now) = (BodyBudget::new(100), Instant::now());
        let [first, second, third] = [(); 3].map(|()| all.enter(now));
        assert!(
            first.try_reserve(40, now)
                && second.try_reserve(60, now)
                && third.try_reserve(200, now)
        );
        assert!(!first.try_reserve(50, now), "others go on");
        assert!(!third.try_reserve(300, now) && !second.try_reserve(70, now));
        assert!(first.try_reserve(50, now), "no other body can go on");
        assert!(!second.try_reserve(70, now) && first.try_reserve(60, now));
        drop(first);
        assert!(second.try_reserve(70, now));
    }

    #[test]
    fn a_waiting_body_is_not_slow() {
        let (all, start) = (BodyBudget::new(100), Instant::now());
        let [one, other] = [(); 2].map(|()| all.enter(start));
        assert!(one.try_reserve(101, start) && !other.try_reserve(60, start));
        assert!(other.try_reserve(60, start + SLOW_AFTER));
        assert_eq!(evicted(&[&one, &other]), [true, false]);
    }

    #[test]
    fn a_complete_body_keeps_its_memory_and_stays() {
        let (all, start) = (BodyBudget::new(100), Instant::now());
        let (whole, next) = (all.enter(start), all.enter(start));
        assert!(whole.try_reserve(101, start));
        whole.mark_complete();
        assert!(!next.try_reserve(60, start + SLOW_AFTER));
        assert_eq!(evicted(&[&whole, &next]), [false, false]);
        drop((whole, next));
        let alone = all.enter(start);
        assert!(alone.try_reserve(1000, start) && alone.try_reserve(2000, start), "of any size");
        drop(alone);
        let held = all.lock();
        assert_eq!((held.bytes, held.bodies.len(), held.waiting.len()), (0, 0, 0));
    }
}
