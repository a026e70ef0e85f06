//! What a connection's reader, writer and service know of each other: whose turn it is, and until when.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Instant;

use super::head::HeadError;
use super::in_flight::InFlightGuard;
use super::limits::HttpLimits;
use super::response_budget::{ResponseReservation, ResponseWriter};

/// Whether the client owes us bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// Nobody's, since then.
    Idle(Instant),
    /// The client's, who began a head then.
    Head(Instant),
    /// Serving: a request is being served. Its body's deadline is the body reader's.
    Serving,
}

/// The state, with every change of it a named event.
#[derive(Debug)]
struct StateFields {
    turn: ConnectionPhase,
    /// What was found of a head that hyper was shown and has not yet announced.
    shown: Option<Result<(), HeadError>>,
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
    unread: Option<ResponseReservation>,
    /// Whether this answer has to make room for others.
    evicted: bool,
    /// Wakes whoever closes the connection.
    closer: Option<Waker>,
}

/// A connection's shared state. Cloned into each of its parts.
#[derive(Debug, Clone)]
pub struct ConnectionState(Arc<SharedConnection>);

#[derive(Debug)]
struct SharedConnection(Mutex<StateFields>);

impl SharedConnection {
    fn lock(&self) -> MutexGuard<'_, StateFields> {
        // No change of the state panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResponseWriter for SharedConnection {
    fn blocked_since(&self) -> Option<Instant> {
        self.lock().blocked_since
    }

    fn evict(&self) {
        let mut state = self.lock();
        state.evicted = true;
        let closer = state.closer.take();
        drop(state);
        if let Some(closer) = closer {
            closer.wake();
        }
    }
}

impl ConnectionState {
    /// A connection that was accepted at `now`.
    pub fn new(now: Instant) -> Self {
        Self(Arc::new(SharedConnection(Mutex::new(StateFields {
            turn: ConnectionPhase::Idle(now),
            shown: None,
            written: false,
            blocked_since: None,
            streaming: false,
            unanswered: None,
            unread: None,
            evicted: false,
            closer: None,
        }))))
    }

    /// The connection as the response budget sees it.
    pub fn writer(&self) -> Weak<dyn ResponseWriter> {
        let writer: Arc<dyn ResponseWriter> = Arc::<SharedConnection>::clone(&self.0);
        Arc::downgrade(&writer)
    }

    /// The first byte of a head has come.
    pub fn head_began(&self, now: Instant) {
        let mut state = self.lock();
        if !matches!(state.turn, ConnectionPhase::Head(_)) {
            state.turn = ConnectionPhase::Head(now);
        }
    }

    /// A whole head was judged and goes to hyper.
    pub fn head_shown(&self, judged: Result<(), HeadError>) {
        self.lock().shown = Some(judged);
    }

    /// hyper has announced a request: whether it may be served.
    pub fn request_began(&self, guard: InFlightGuard) -> Result<(), HeadError> {
        let mut state = self.lock();
        state.turn = ConnectionPhase::Serving;
        state.unanswered = Some(guard);
        state.shown.take().unwrap_or(Err(HeadError::Ambiguous))
    }

    /// The answer's head, and a body that follows by itself, are hyper's to write.
    pub fn answered(&self, now: Instant, streaming: bool) {
        let mut state = self.lock();
        state.streaming = streaming;
        if state.turn == ConnectionPhase::Serving {
            state.turn = ConnectionPhase::Idle(now);
        }
    }

    /// The answer that is being written counts among the unread ones.
    pub fn answer_held(&self, answer: ResponseReservation) {
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
        let stalled = state.unread.as_ref().map(ResponseReservation::stalled);
        drop(state);
        if let Some(stalled) = stalled {
            stalled();
        }
    }

    /// Whether the connection is to be closed at once; `closer` is woken when that changes.
    pub fn is_evicted(&self, closer: &Waker) -> bool {
        let mut state = self.lock();
        if !state.closer.as_ref().is_some_and(|known| known.will_wake(closer)) {
            state.closer = Some(closer.clone());
        }
        state.evicted
    }

    /// Everything hyper had to write is with the kernel. hyper says so again
    /// whenever it is polled, which is no sign of life.
    pub fn flushed(&self, now: Instant) {
        let mut state = self.lock();
        if !std::mem::take(&mut state.written) {
            return;
        }
        state.blocked_since = None;
        if let ConnectionPhase::Idle(since) = &mut state.turn {
            *since = now;
        }
        if state.turn != ConnectionPhase::Serving && !state.streaming {
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
            ConnectionPhase::Idle(_) if state.blocked_since.is_some() => None,
            ConnectionPhase::Idle(since) => since.checked_add(limits.idle_max),
            ConnectionPhase::Head(since) => since.checked_add(limits.head_within),
            ConnectionPhase::Serving => None,
        };
        let answer_due =
            state.blocked_since.and_then(|since| since.checked_add(limits.answer_within));
        turn_due.into_iter().chain(answer_due).min()
    }

    fn lock(&self) -> MutexGuard<'_, StateFields> {
        self.0.lock()
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
        let (state, in_flight) = (ConnectionState::new(start), InFlight::default());
        let second = |n| start + Duration::from_secs(n);
        assert_eq!(state.due(&limits), Some(start + IDLE));
        state.head_began(second(1));
        state.head_began(second(5));
        assert_eq!(state.due(&limits), Some(second(1) + HEAD), "a drip does not renew it");
        state.head_shown(Ok(()));
        assert_eq!(state.request_began(in_flight.enter()), Ok(()));
        assert_eq!(state.due(&limits), None);
        state.answered(second(20), false);
        state.blocked(second(21));
        state.wrote();
        state.blocked(second(25));
        assert_eq!(state.due(&limits), Some(second(21) + ANSWER));
        state.flushed(second(30));
        state.flushed(second(40));
        assert_eq!(state.due(&limits), Some(second(30) + IDLE), "nothing was written since");
    }

    #[test]
    fn any_progress_of_a_stream_renews_its_deadline() {
        let (limits, start) = (HttpLimits::default(), Instant::now());
        let state = ConnectionState::new(start);
        state.answered(start, true);
        state.blocked(start);
        state.wrote();
        state.blocked(start + HEAD);
        assert_eq!(state.due(&limits), Some(start + HEAD + ANSWER));
    }

    #[test]
    fn a_request_out_of_a_head_never_seen_is_refused() {
        let (state, in_flight) = (ConnectionState::new(Instant::now()), InFlight::default());
        assert_eq!(state.request_began(in_flight.enter()), Err(HeadError::Ambiguous));
        state.head_shown(Err(HeadError::Lengths));
        assert_eq!(state.request_began(in_flight.enter()), Err(HeadError::Lengths));
    }

    #[test]
    fn a_request_is_in_flight_until_its_answer_is_flushed() {
        let (state, in_flight) = (ConnectionState::new(Instant::now()), InFlight::default());
        let _ = state.request_began(in_flight.enter());
        state.wrote();
        state.flushed(Instant::now());
        assert_eq!(in_flight.count(), 1, "a flushed 100 Continue is no answer");
        state.answered(Instant::now(), false);
        state.flushed(Instant::now());
        assert_eq!(in_flight.count(), 1, "nothing of the answer was written");
        state.wrote();
        state.flushed(Instant::now());
        assert_eq!(in_flight.count(), 0);
    }
    #[test]
    fn a_stream_is_in_flight_until_its_end_is_flushed() {
        let (state, in_flight) = (ConnectionState::new(Instant::now()), InFlight::default());
        let _ = state.request_began(in_flight.enter());
        state.answered(Instant::now(), true);
        state.wrote();
        state.flushed(Instant::now());
        assert_eq!(in_flight.count(), 1, "more of it may come");
        state.stream_ended();
        state.flushed(Instant::now());
        assert_eq!(in_flight.count(), 1, "its end was not written");
        state.wrote();
        state.flushed(Instant::now());
        assert_eq!(in_flight.count(), 0);
    }
}
