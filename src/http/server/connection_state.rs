//! What a connection's reader, writer and service know of each other: whose turn it is, and until when.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Instant;

use super::head::HeadFault;
use super::in_flight::InFlightGuard;
use super::limits::HttpLimits;
use super::response_budget::UnreadAnswer;

/// Whether the client owes us bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Nobody's, since then.
    Idle(Instant),
    /// The client's, who began a head then.
    Head(Instant),
    /// Ours: a request is being served. Its body's deadline is the body reader's.
    Ours,
}

/// The state, with every change of it a named event.
#[derive(Debug)]
struct State {
    turn: Turn,
    /// What was found of a head that hyper was shown and has not yet announced.
    shown: Option<Result<(), HeadFault>>,
    /// Whether bytes were written since the last flush.
    written: bool,
    /// Since when the socket has had no room for the answer.
    blocked_since: Option<Instant>,
    /// Whether the answer is still being made while it is sent: any progress
    /// of it counts, and what is flushed is not its end.
    streaming: bool,
    /// Held until the answer is with the kernel.
    unanswered: Option<InFlightGuard>,
    /// Held until the answer is with the kernel: its share of what unread answers may hold.
    unread: Option<UnreadAnswer>,
    /// Whether this answer has to make room for others.
    given_up: bool,
    /// Wakes whoever closes the connection.
    closer: Option<Waker>,
}

/// A connection's shared state. Cloned into each of its parts.
#[derive(Debug, Clone)]
pub struct Exchange(Arc<Mutex<State>>);

/// The state of a connection that may have ended.
#[derive(Debug, Clone)]
pub struct WeakExchange(Weak<Mutex<State>>);

impl WeakExchange {
    /// The state, while the connection is there.
    pub fn upgrade(&self) -> Option<Exchange> {
        self.0.upgrade().map(Exchange)
    }
}

impl Exchange {
    /// A connection that was accepted at `now`.
    pub fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(State {
            turn: Turn::Idle(now),
            shown: None,
            written: false,
            blocked_since: None,
            streaming: false,
            unanswered: None,
            unread: None,
            given_up: false,
            closer: None,
        })))
    }

    /// The same without keeping it.
    pub fn downgrade(&self) -> WeakExchange {
        WeakExchange(Arc::downgrade(&self.0))
    }

    /// The first byte of a head has come.
    pub fn head_began(&self, now: Instant) {
        let mut state = self.lock();
        if !matches!(state.turn, Turn::Head(_)) {
            state.turn = Turn::Head(now);
        }
    }

    /// A whole head was judged and goes to hyper.
    pub fn head_shown(&self, judged: Result<(), HeadFault>) {
        self.lock().shown = Some(judged);
    }

    /// hyper has announced a request: whether it may be served.
    pub fn request_began(&self, guard: InFlightGuard) -> Result<(), HeadFault> {
        let mut state = self.lock();
        state.turn = Turn::Ours;
        state.unanswered = Some(guard);
        state.shown.take().unwrap_or(Err(HeadFault::Ambiguous))
    }

    /// The answer's head, and a body that follows by itself, are hyper's to write.
    pub fn answered(&self, now: Instant, streaming: bool) {
        let mut state = self.lock();
        state.streaming = streaming;
        if state.turn == Turn::Ours {
            state.turn = Turn::Idle(now);
        }
    }

    /// The answer that is being written counts among the unread ones.
    pub fn answer_held(&self, answer: UnreadAnswer) {
        let before = self.lock().unread.replace(answer);
        // Counted out beyond the lock: others' states are looked at there.
        drop(before);
    }

    /// The last of a streaming answer is hyper's to write.
    pub fn stream_ended(&self) {
        self.lock().streaming = false;
    }

    /// The socket took some bytes.
    pub fn wrote(&self) {
        let mut state = self.lock();
        state.written = true;
        if state.streaming {
            state.blocked_since = None;
        }
    }

    /// The socket had no room.
    pub fn blocked(&self, now: Instant) {
        let mut state = self.lock();
        if state.blocked_since.is_some() {
            return;
        }
        state.blocked_since = Some(now);
        let stalled = state.unread.as_ref().map(UnreadAnswer::stalled);
        drop(state);
        if let Some(stalled) = stalled {
            stalled();
        }
    }

    /// Since when the socket has had no room for the answer, if it has none.
    pub fn blocked_since(&self) -> Option<Instant> {
        self.lock().blocked_since
    }

    /// Has the connection closed under its answer.
    pub fn give_up(&self) {
        let mut state = self.lock();
        state.given_up = true;
        let closer = state.closer.take();
        drop(state);
        if let Some(closer) = closer {
            closer.wake();
        }
    }

    /// Whether the connection is to be closed at once; `closer` is woken when that changes.
    pub fn is_given_up(&self, closer: &Waker) -> bool {
        let mut state = self.lock();
        if !state.closer.as_ref().is_some_and(|known| known.will_wake(closer)) {
            state.closer = Some(closer.clone());
        }
        state.given_up
    }

    /// Everything hyper had to write is with the kernel. hyper says so again
    /// whenever it is polled, which is no sign of life.
    pub fn flushed(&self, now: Instant) {
        let mut state = self.lock();
        if !std::mem::take(&mut state.written) {
            return;
        }
        state.blocked_since = None;
        if let Turn::Idle(since) = &mut state.turn {
            *since = now;
        }
        if state.turn != Turn::Ours && !state.streaming {
            state.unanswered = None;
            let read = state.unread.take();
            drop(state);
            drop(read);
        }
    }

    /// When the connection is to be closed unless something happens before.
    pub fn due(&self, limits: &HttpLimits) -> Option<Instant> {
        let state = self.lock();
        let turn_due = match state.turn {
            // What is being written has its own limit.
            Turn::Idle(_) if state.blocked_since.is_some() => None,
            Turn::Idle(since) => since.checked_add(limits.idle_max),
            Turn::Head(since) => since.checked_add(limits.head_within),
            Turn::Ours => None,
        };
        let answer_due =
            state.blocked_since.and_then(|since| since.checked_add(limits.answer_within));
        turn_due.into_iter().chain(answer_due).min()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No change of the state panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::in_flight::InFlight;

    const HEAD: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(60);
    const ANSWER: Duration = Duration::from_secs(30);

    #[test]
    fn each_turn_has_its_own_deadline() {
        let (limits, start) = (HttpLimits::default(), Instant::now());
        let (exchange, in_flight) = (Exchange::new(start), InFlight::default());
        let second = |n| start + Duration::from_secs(n);
        assert_eq!(exchange.due(&limits), Some(start + IDLE));
        exchange.head_began(second(1));
        exchange.head_began(second(5));
        assert_eq!(exchange.due(&limits), Some(second(1) + HEAD), "a drip does not renew it");
        exchange.head_shown(Ok(()));
        assert_eq!(exchange.request_began(in_flight.enter()), Ok(()));
        assert_eq!(exchange.due(&limits), None);
        exchange.answered(second(20), false);
        exchange.blocked(second(21));
        exchange.wrote();
        exchange.blocked(second(25));
        assert_eq!(exchange.due(&limits), Some(second(21) + ANSWER));
        exchange.flushed(second(30));
        exchange.flushed(second(40));
        assert_eq!(exchange.due(&limits), Some(second(30) + IDLE), "nothing was written since");
    }

    #[test]
    fn any_progress_of_a_stream_renews_its_deadline() {
        let (limits, start) = (HttpLimits::default(), Instant::now());
        let exchange = Exchange::new(start);
        exchange.answered(start, true);
        exchange.blocked(start);
        exchange.wrote();
        exchange.blocked(start + HEAD);
        assert_eq!(exchange.due(&limits), Some(start + HEAD + ANSWER));
    }

    #[test]
    fn a_request_out_of_a_head_never_seen_is_refused() {
        let (exchange, in_flight) = (Exchange::new(Instant::now()), InFlight::default());
        assert_eq!(exchange.request_began(in_flight.enter()), Err(HeadFault::Ambiguous));
        exchange.head_shown(Err(HeadFault::Lengths));
        assert_eq!(exchange.request_began(in_flight.enter()), Err(HeadFault::Lengths));
    }

    #[test]
    fn a_request_is_in_flight_until_its_answer_is_flushed() {
        let (exchange, in_flight) = (Exchange::new(Instant::now()), InFlight::default());
        let _ = exchange.request_began(in_flight.enter());
        exchange.wrote();
        exchange.flushed(Instant::now());
        assert_eq!(in_flight.count(), 1, "a flushed 100 Continue is no answer");
        exchange.answered(Instant::now(), false);
        exchange.flushed(Instant::now());
        assert_eq!(in_flight.count(), 1, "nothing of the answer was written");
        exchange.wrote();
        exchange.flushed(Instant::now());
        assert_eq!(in_flight.count(), 0);
    }
    #[test]
    fn a_stream_is_in_flight_until_its_end_is_flushed() {
        let (exchange, in_flight) = (Exchange::new(Instant::now()), InFlight::default());
        let _ = exchange.request_began(in_flight.enter());
        exchange.answered(Instant::now(), true);
        exchange.wrote();
        exchange.flushed(Instant::now());
        assert_eq!(in_flight.count(), 1, "more of it may come");
        exchange.stream_ended();
        exchange.flushed(Instant::now());
        assert_eq!(in_flight.count(), 1, "its end was not written");
        exchange.wrote();
        exchange.flushed(Instant::now());
        assert_eq!(in_flight.count(), 0);
    }
}
