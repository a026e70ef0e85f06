//! Orders to a running program, from any thread to the one that supervises it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::run::outcome::NotStarted;
use crate::values::deadline::Deadline;

/// How many orders may wait for the supervising thread.
const ORDERS_MAX: usize = 64;
/// How long an order waits for its answer, besides the time that it names itself.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Controls one run and tells when its program has started. Clones control the same run.
#[derive(Debug, Clone)]
pub struct RunControl(Arc<ControlShared>);

#[derive(Debug)]
struct ControlShared {
    wake: EventFd,
    state: Mutex<ControlState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ControlState {
    orders: VecDeque<ControlOrder>,
    /// Whether the program was executed, once that is known.
    start: Option<Result<(), NotStarted>>,
    ended: bool,
}

/// An order that waits for its answer.
#[derive(Debug)]
pub struct ControlOrder {
    /// What to do.
    pub kind: OrderKind,
    answer: SyncSender<Result<(), ControlError>>,
}

/// What a run is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderKind {
    /// Send this signal to the main process.
    Signal(i32),
    /// Send this signal to the foreground process group of the terminal.
    SignalForeground(i32),
    /// Send SIGTERM to the main process, and kill the sandbox after this time.
    Terminate(Duration),
    /// Set the size of the terminal.
    Resize(TerminalSize),
    /// Stop every process of the sandbox.
    Freeze {
        /// Fail if they are not stopped by then.
        by: Deadline,
        /// Resume them at this time if no thaw has come.
        until: Deadline,
    },
    /// Let the stopped processes go on.
    Thaw,
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Characters in a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}

/// Why an order was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The run has ended, or did not start.
    #[error("the run has ended")]
    Ended,
    /// The program has not started yet.
    #[error("the program has not started")]
    NotStarted,
    /// The run has no terminal.
    #[error("the run has no terminal")]
    NoTerminal,
    /// Too many orders wait.
    #[error("too many orders wait for the run")]
    Busy,
    /// It took too long. Frozen processes go on.
    #[error("it took too long")]
    TimedOut,
    /// The host lacks what the order needs.
    #[error("not possible on this host")]
    Unsupported,
    /// The kernel refused it.
    #[error("{:?}", nix::errno::Errno::from_raw(*.0))]
    Refused(i32),
}

impl RunControl {
    /// For one run. Uses one descriptor.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_value_and_flags(0, flags)?;
        let (state, changed) = (Mutex::default(), Condvar::new());
        Ok(Self(Arc::new(ControlShared { wake, state, changed })))
    }

    /// Whether both control the same run.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Sends `signal` to the main process.
    ///
    /// # Errors
    /// Why it was not sent.
    pub fn signal(&self, signal: i32) -> Result<(), ControlError> {
        self.order(OrderKind::Signal(signal), ANSWER_WAIT)
    }

    /// Sends `signal` to the foreground process group of the terminal, as a key does.
    ///
    /// # Errors
    /// Why it was not sent.
    pub fn signal_foreground(&self, signal: i32) -> Result<(), ControlError> {
        self.order(OrderKind::SignalForeground(signal), ANSWER_WAIT)
    }

    /// Sends SIGTERM to the main process alone. When it ends, or after `grace`, the whole sandbox is
    /// killed. Returns at once; the run ends as [`Outcome::Cancelled`](crate::Outcome::Cancelled)
    /// only if the grace was over. A program that has not started is cancelled.
    ///
    /// # Errors
    /// The run has ended already.
    pub fn terminate(&self, grace: Duration) -> Result<(), ControlError> {
        self.order(OrderKind::Terminate(grace), ANSWER_WAIT)
    }

    /// Sets the size of the terminal.
    ///
    /// # Errors
    /// Why it was not set.
    pub fn resize(&self, size: TerminalSize) -> Result<(), ControlError> {
        self.order(OrderKind::Resize(size), ANSWER_WAIT)
    }

    /// Stops every process of the sandbox, which takes at most `within`, until
    /// [`RunControl::thaw`] or for `at_most`.
    ///
    /// # Errors
    /// Why they are not stopped.
    pub fn freeze(&self, within: Duration, at_most: Duration) -> Result<(), ControlError> {
        let (by, until) = (Deadline::after(within), Deadline::after(at_most));
        self.order(OrderKind::Freeze { by, until }, within + ANSWER_WAIT)
    }

    /// Lets the stopped processes go on.
    ///
    /// # Errors
    /// [`ControlError::TimedOut`] if they have gone on before, since the time for it was over.
    pub fn thaw(&self) -> Result<(), ControlError> {
        self.order(OrderKind::Thaw, ANSWER_WAIT)
    }

    /// Waits until the program was executed, or is known not to be. `None` if neither happens
    /// before the deadline.
    pub fn wait_started(&self, deadline: Deadline) -> Option<Result<(), NotStarted>> {
        let waits = |state: &mut ControlState| state.start.is_none() && !state.ended;
        let waited = self.0.changed.wait_timeout_while(self.lock(), deadline.remaining(), waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.start.clone()
    }

    /// Tells that the program was executed. For the supervising thread.
    pub fn note_started(&self) {
        self.lock().start.get_or_insert(Ok(()));
        self.0.changed.notify_all();
    }

    /// Tells that the run has ended, or why it did not start; waiting orders fail. For the thread
    /// that executes the run.
    pub fn note_ended<T>(&self, result: &Result<T, NotStarted>) {
        let mut state = self.lock();
        state.start.get_or_insert_with(|| result.as_ref().map(drop).map_err(Clone::clone));
        state.ended = true;
        state.orders.clear();
        self.0.changed.notify_all();
    }

    /// The next order. For the supervising thread.
    pub fn next_order(&self) -> Option<ControlOrder> {
        let mut state = self.lock();
        if state.orders.is_empty() {
            // Under the lock: a later order wakes again.
            let _ = self.0.wake.read();
        }
        state.orders.pop_front()
    }

    fn order(&self, kind: OrderKind, at_most: Duration) -> Result<(), ControlError> {
        let answer = self.send(kind)?;
        answer.recv_timeout(at_most).unwrap_or_else(|error| match error {
            std::sync::mpsc::RecvTimeoutError::Timeout => Err(ControlError::TimedOut),
            std::sync::mpsc::RecvTimeoutError::Disconnected => Err(ControlError::Ended),
        })
    }

    fn send(&self, kind: OrderKind) -> Result<Receiver<Result<(), ControlError>>, ControlError> {
        let (answer, answered) = sync_channel(1);
        let mut state = self.lock();
        if state.ended {
            return Err(ControlError::Ended);
        }
        if state.orders.len() >= ORDERS_MAX {
            return Err(ControlError::Busy);
        }
        state.orders.push_back(ControlOrder { kind, answer });
        drop(state);
        // It fails only if the counter is at its maximum, which reads as woken.
        let _ = self.0.wake.write(1);
        Ok(answered)
    }

    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for RunControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

impl ControlOrder {
    /// Answers it. A caller that no longer waits misses nothing.
    pub fn answer(self, result: Result<(), ControlError>) {
        let _ = self.answer.try_send(result);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::SetupFailure;

    #[test]
    fn orders_are_taken_in_order_and_answered_to_their_callers() {
        let control = RunControl::new().unwrap();
        let (first, second) = (
            control.send(OrderKind::Signal(1)).unwrap(),
            control.send(OrderKind::Signal(2)).unwrap(),
        );
        for (number, answer) in [(1, Ok(())), (2, Err(ControlError::NotStarted))] {
            let order = control.next_order().unwrap();
            assert_eq!(order.kind, OrderKind::Signal(number));
            order.answer(answer);
        }
        assert!(control.next_order().is_none());
        assert_eq!(first.recv().unwrap(), Ok(()));
        assert_eq!(second.recv().unwrap(), Err(ControlError::NotStarted));
    }

    #[test]
    fn a_bounded_number_of_orders_waits_and_all_fail_at_the_end() {
        let control = RunControl::new().unwrap();
        let waiting: Vec<_> =
            (0..ORDERS_MAX).map(|_| control.send(OrderKind::Thaw).unwrap()).collect();
        assert_eq!(control.send(OrderKind::Thaw).map(drop), Err(ControlError::Busy));
        control.note_ended(&Ok(()));
        for answer in waiting {
            assert!(answer.recv().is_err());
        }
        assert_eq!(control.signal(1), Err(ControlError::Ended));
    }

    #[test]
    fn the_start_is_told_once_and_to_all_who_wait() {
        let control = RunControl::new().unwrap();
        assert_eq!(control.wait_started(Deadline::after(Duration::ZERO)), None);
        let waits = control.clone();
        let patience = Duration::from_secs(60);
        let waiting = thread::spawn(move || waits.wait_started(Deadline::after(patience)));
        let failure = NotStarted::from(SetupFailure::from_words("step", "reason"));
        control.note_ended::<()>(&Err(failure.clone()));
        control.note_started();
        assert_eq!(waiting.join().unwrap(), Some(Err(failure)));
    }
}
