//! The state that a connection's reader, writer and service share: its phase and its deadlines.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Instant;

use super::limits::HttpLimits;
use super::response_budget::{ResponseReservation, ResponseWriter};
use cofferdam_core::framing::head::HeadError;
use cofferdam_core::sync::in_flight::InFlightGuard;

/// What the connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// The next request, since then.
    Idle(Instant),
    /// The rest of a head that began then.
    Head(Instant),
    /// The service. The body reader enforces the body's deadline.
    Serving,
}

/// The fields. Each change is a named method.
#[derive(Debug)]
struct StateFields {
    phase: ConnectionPhase,
    /// The verdict on a head that hyper has received but not yet reported.
    shown: Option<Result<(), HeadError>>,
    /// Whether bytes were written since the last flush.
    written: bool,
    /// Since when the socket has had no room for the response.
    blocked_since: Option<Instant>,
    /// Whether the response is made while it is sent. Then any progress renews its deadline, and a
    /// flush is not its end.
    streaming: bool,
    /// Held until the kernel has the whole response.
    unanswered: Option<InFlightGuard>,
    /// Held until the kernel has the whole response: its share of the response budget.
    unread: Option<ResponseReservation>,
    /// Whether the response is evicted to make room for others.
    evicted: bool,
    /// Wakes the task that closes the connection.
    closer: Option<Waker>,
}

/// The state of a connection, cloned into each of its parts.
#[derive(Debug, Clone)]
pub struct ConnectionState(Arc<SharedConnection>);

#[derive(Debug)]
struct SharedConnection(Mutex<StateFields>);

impl SharedConnection {
    fn lock(&self) -> MutexGuard<'_, StateFields> {
        // No update panics halfway.
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
    /// Creates the state of a connection accepted at `now`.
    pub fn new(now: Instant) -> Self {
        Self(Arc::new(SharedConnection(Mutex::new(StateFields {
            phase: ConnectionPhase::Idle(now),
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

    /// Returns the connection as the response budget sees it.
    pub fn writer(&self) -> Weak<dyn ResponseWriter> {
        let writer: Arc<dyn ResponseWriter> = Arc::<SharedConnection>::clone(&self.0);
        Arc::downgrade(&writer)
    }

    /// Records that the first byte of a head has arrived.
    pub fn head_began(&self, now: Instant) {
        let mut state = self.lock();
        if !matches!(state.phase, ConnectionPhase::Head(_)) {
            state.phase = ConnectionPhase::Head(now);
        }
    }

    /// Records the verdict on a complete head that goes to hyper.
    pub fn head_shown(&self, verdict: Result<(), HeadError>) {
        self.lock().shown = Some(verdict);
    }

    /// Records that hyper has reported a request, and returns whether it may be served.
    pub fn request_began(&self, guard: InFlightGuard) -> Result<(), HeadError> {
        let mut state = self.lock();
        state.phase = ConnectionPhase::Serving;
        state.unanswered = Some(guard);
        state.shown.take().unwrap_or(Err(HeadError::Ambiguous))
    }

    /// Records that hyper has the response's head, and the body unless it is streamed.
    pub fn answered(&self, now: Instant, streaming: bool) {
        let mut state = self.lock();
        state.streaming = streaming;
        if state.phase == ConnectionPhase::Serving {
            state.phase = ConnectionPhase::Idle(now);
        }
    }

    /// Counts the response that is being written against the budget.
    pub fn answer_held(&self, answer: ResponseReservation) {
        let before = self.lock().unread.replace(answer);
        // Dropped without the lock: freeing budget locks other connections' states.
        drop(before);
    }

    /// Records that hyper has the last frame of a streamed response.
    pub fn stream_ended(&self) {
        self.lock().streaming = false;
    }

    /// Records that the socket accepted bytes.
    pub fn wrote(&self) {
        let mut state = self.lock();
        state.written = true;
        if state.streaming {
            state.blocked_since = None;
        }
    }

    /// Records that the socket had no room.
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

    /// Returns whether the connection must close now; `closer` is woken when that changes.
    pub fn is_evicted(&self, closer: &Waker) -> bool {
        let mut state = self.lock();
        if !state.closer.as_ref().is_some_and(|known| known.will_wake(closer)) {
            state.closer = Some(closer.clone());
        }
        state.evicted
    }

    /// Records that the kernel has everything that hyper had to write. hyper flushes whenever it is
    /// polled, which is not progress by itself.
    pub fn flushed(&self, now: Instant) {
        let mut state = self.lock();
        if !std::mem::take(&mut state.written) {
            return;
        }
        state.blocked_since = None;
        if let ConnectionPhase::Idle(since) = &mut state.phase {
            *since = now;
        }
        if state.phase != ConnectionPhase::Serving && !state.streaming {
            state.unanswered = None;
            let reservation = state.unread.take();
            drop(state);
            drop(reservation);
        }
    }

    /// Returns when the connection must close unless its state changes.
    pub fn due(&self, limits: &HttpLimits) -> Option<Instant> {
        let state = self.lock();
        let phase_due = match state.phase {
            // A response that is being written has its own deadline.
            ConnectionPhase::Idle(_) if state.blocked_since.is_some() => None,
            ConnectionPhase::Idle(since) => since.checked_add(limits.idle_max),
            ConnectionPhase::Head(since) => since.checked_add(limits.head_within),
            ConnectionPhase::Serving => None,
        };
        let answer_due =
            state.blocked_since.and_then(|since| since.checked_add(limits.answer_within));
        phase_due.into_iter().chain(answer_due).min()
    }

    fn lock(&self) -> MutexGuard<'_, StateFields> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use cofferdam_core::sync::in_flight::InFlight;

    const HEAD: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(60);
    const ANSWER: Duration = Duration::from_secs(30);

    #[test]
    fn each_phase_has_its_own_deadline() {
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
    fn a_request_without_a_checked_head_is_refused() {
        let (state, in_flight) = (ConnectionState::new(Instant::now()), InFlight::default());
        assert_eq!(state.request_began(in_flight.enter()), Err(HeadError::Ambiguous));
        state.head_shown(Err(HeadError::Lengths));
        assert_eq!(state.request_began(in_flight.enter()), Err(HeadError::Lengths));
    }

    #[test]
    fn a_request_is_in_flight_until_its_response_is_flushed() {
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
