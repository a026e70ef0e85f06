//! Calls of one context take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::workspace::error::{EngineCode, EngineError};

/// Calls that may wait for their turn.
const WAITING_MAX: usize = 16;

/// Whose turn it is, in the order of arrival.
#[derive(Debug)]
pub struct TurnQueue {
    turn: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

/// The turn of one call. Dropped when it is over.
#[derive(Debug)]
pub struct ContextTurn(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

/// A place among those that wait.
struct WaitingPlace(Arc<AtomicUsize>);

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TurnQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), waiting: Arc::default() }
    }

    /// Waits for the turn.
    ///
    /// # Errors
    /// Too many wait, or the context is gone.
    pub async fn wait(&self) -> Result<ContextTurn, EngineError> {
        if let Ok(turn) = Arc::clone(&self.turn).try_acquire_owned() {
            return Ok(ContextTurn(turn));
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let words = format!("{WAITING_MAX} calls wait for the context");
            return Err(EngineError::new(EngineCode::ContextBusy, words).with("max", WAITING_MAX));
        }
        let _place = WaitingPlace(Arc::clone(&self.waiting));
        let turn = Arc::clone(&self.turn).acquire_owned().await;
        turn.map(ContextTurn).map_err(|_| no_context())
    }

    /// Whether a call has the turn.
    pub fn is_taken(&self) -> bool {
        self.turn.available_permits() == 0
    }

    /// Calls that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Refuses those that wait, and all that follow.
    pub fn close(&self) {
        self.turn.close();
    }
}

/// What requests for a context are answered that does not exist.
pub fn no_context() -> EngineError {
    EngineError::new(EngineCode::ContextNotFound, "no such context")
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(waiting: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        waiting.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn sixteen_wait_in_their_order_and_one_more_is_refused() {
        let queue = TurnQueue::new();
        let Poll::Ready(Ok(turn)) = poll(pin!(queue.wait())) else { panic!("the first waits") };
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Box::pin(queue.wait())).collect();
        for place in &mut waiting {
            assert!(poll(place.as_mut()).is_pending());
        }
        let Poll::Ready(Err(error)) = poll(pin!(queue.wait())) else { panic!("one too many") };
        assert_eq!(error.code, EngineCode::ContextBusy);
        drop(turn);
        assert!(poll(waiting[1].as_mut()).is_pending());
        let Poll::Ready(Ok(_turn)) = poll(waiting[0].as_mut()) else { panic!("not its turn") };
        drop(waiting);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn a_closed_queue_refuses_those_that_wait() {
        let queue = TurnQueue::new();
        let Poll::Ready(Ok(_turn)) = poll(pin!(queue.wait())) else { panic!("the first waits") };
        let mut waiting = pin!(queue.wait());
        assert!(poll(waiting.as_mut()).is_pending());
        queue.close();
        let Poll::Ready(Err(error)) = poll(waiting) else { panic!("it waits") };
        assert_eq!(error.code, EngineCode::ContextNotFound);
    }
}
