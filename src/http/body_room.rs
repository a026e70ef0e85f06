//! How much memory all request bodies may hold that are being read.
//!
//! A body that never ends stays until its deadline, so that a client with many connections could
//! have as many bodies here as connections. Where they hold too much together, one that holds more
//! than its share and began first is given up: a small body never makes room for large ones, and
//! of large ones those that are sent without a pause are over before it is their turn.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The bodies of all connections.
#[derive(Clone)]
pub struct BodyRooms(Arc<Inner>);

struct Inner {
    bytes_max: u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    bytes: u64,
    /// By number: those that began first come first.
    bodies: BTreeMap<u64, Body>,
    next: u64,
}

#[derive(Default)]
struct Body {
    bytes: u64,
    /// Whole: it holds its room until it is parsed, and is not given up any more.
    is_whole: bool,
    given_up: bool,
    reader: Option<Waker>,
}

/// One body's room; dropping it gives it back.
pub struct BodyRoom {
    all: BodyRooms,
    number: u64,
}

impl fmt::Debug for BodyRooms {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BodyRooms").field("bytes_max", &self.0.bytes_max).finish_non_exhaustive()
    }
}

impl fmt::Debug for BodyRoom {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BodyRoom").field("number", &self.number).finish_non_exhaustive()
    }
}

impl BodyRooms {
    /// Bodies that may hold `bytes_max` bytes together, as long as there is more than one.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Inner { bytes_max, held: Mutex::default() }))
    }

    /// The room of a body that begins now.
    pub fn enter(&self) -> BodyRoom {
        let mut held = self.lock();
        held.next += 1;
        let number = held.next;
        held.bodies.insert(number, Body::default());
        BodyRoom { all: self.clone(), number }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // No change of it panics half-way.
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn set(&mut self, number: u64, bytes: u64) {
        let Some(body) = self.bodies.get_mut(&number) else { return };
        self.bytes = self.bytes.saturating_sub(body.bytes).saturating_add(bytes);
        body.bytes = bytes;
    }

    /// The readers of those that are given up now, so that no more than `bytes_max` is left.
    fn give_up_some(&mut self, bytes_max: u64) -> Vec<Waker> {
        let mut readers = Vec::new();
        while self.bytes > bytes_max && self.bodies.len() > 1 {
            let share = bytes_max / self.bodies.len() as u64;
            let mut reading =
                self.bodies.iter().filter(|(_, body)| !body.is_whole && !body.given_up);
            let Some(number) = reading.find(|(_, body)| body.bytes > share).map(|(n, _)| *n) else {
                break;
            };
            self.set(number, 0);
            if let Some(body) = self.bodies.get_mut(&number) {
                body.given_up = true;
                readers.extend(body.reader.take());
            }
        }
        readers
    }
}

impl BodyRoom {
    /// The body holds so many bytes now. Others, or this one, may have to go for it.
    pub fn hold(&self, bytes: usize) {
        let mut held = self.all.lock();
        held.set(self.number, bytes as u64);
        let readers = held.give_up_some(self.all.0.bytes_max);
        drop(held);
        readers.into_iter().for_each(Waker::wake);
    }

    /// All of the body is there.
    pub fn is_whole(&self) {
        if let Some(body) = self.all.lock().bodies.get_mut(&self.number) {
            body.is_whole = true;
            body.reader = None;
        }
    }

    /// What `reading` comes to; none where the body is given up before.
    pub async fn unless_given_up<T>(&self, reading: impl Future<Output = T>) -> Option<T> {
        let mut reading = pin!(reading);
        poll_fn(|cx| {
            if self.is_given_up(cx.waker()) {
                return Poll::Ready(None);
            }
            reading.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// Whether the body is given up; `reader` is woken when that changes.
    fn is_given_up(&self, reader: &Waker) -> bool {
        let mut held = self.all.lock();
        let Some(body) = held.bodies.get_mut(&self.number) else { return true };
        if !body.reader.as_ref().is_some_and(|known| known.will_wake(reader)) {
            body.reader = Some(reader.clone());
        }
        body.given_up
    }
}

impl Drop for BodyRoom {
    fn drop(&mut self) {
        let mut held = self.all.lock();
        held.set(self.number, 0);
        held.bodies.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given_up(rooms: &[&BodyRoom]) -> Vec<bool> {
        rooms.iter().map(|room| room.is_given_up(Waker::noop())).collect()
    }

    #[test]
    fn of_those_above_their_share_the_first_goes_and_small_ones_stay() {
        let all = BodyRooms::new(100);
        let [small, first, second] = [(); 3].map(|()| all.enter());
        small.hold(20);
        first.hold(40);
        second.hold(40);
        assert_eq!(given_up(&[&small, &first, &second]), [false; 3], "100 are not 101");
        second.hold(41);
        assert_eq!(given_up(&[&small, &first, &second]), [false, true, false]);
        let third = all.enter();
        third.hold(60);
        assert_eq!(given_up(&[&small, &second, &third]), [false, true, false]);
        // Nothing is left but itself and a small one.
        third.hold(90);
        assert_eq!(given_up(&[&small, &third]), [false, true]);
    }

    #[test]
    fn a_whole_body_holds_its_room_and_stays() {
        let all = BodyRooms::new(100);
        let (whole, next) = (all.enter(), all.enter());
        whole.hold(80);
        whole.is_whole();
        next.hold(40);
        assert_eq!(given_up(&[&whole, &next]), [false, true]);
        drop((whole, next));
        let alone = all.enter();
        alone.hold(1000);
        assert_eq!(given_up(&[&alone]), [false], "one alone may be of any size");
        drop(alone);
        let held = all.lock();
        assert_eq!((held.bytes, held.bodies.len()), (0, 0));
    }
}
