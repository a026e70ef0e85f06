//! When bytes last passed over a connection of a program or over the one to its host.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Runs `work` until `end` is done. Returns `None` if that comes first.
pub async fn run_until<T>(
    end: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (mut end, mut work) = (pin!(end), pin!(work));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// The last moment of activity. An incomplete request head does not count, so a client that sends
/// one byte at a time still times out.
#[derive(Debug, Clone)]
pub struct Activity(Arc<Mutex<ActivityState>>);

#[derive(Debug)]
struct ActivityState {
    last: Instant,
    /// How many waits have a deadline of their own.
    held: usize,
}

/// While one exists, silence is no idleness.
#[derive(Debug)]
pub struct ActivityHold(Activity);

impl Activity {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(ActivityState { last: Instant::now(), held: 0 })))
    }

    /// Notes that bytes passed.
    pub fn touch(&self) {
        self.state().last = Instant::now();
    }

    /// Suspends the limit of idle time for a wait that has a deadline of its own.
    pub fn hold(&self) -> ActivityHold {
        self.state().held += 1;
        ActivityHold(self.clone())
    }

    /// Runs `work` until nothing has passed for `idle_max`. Returns `None` if that comes first.
    pub async fn watch<T>(&self, idle_max: Duration, work: impl Future<Output = T>) -> Option<T> {
        run_until(self.idle(idle_max), work).await
    }

    /// Waits until nothing has passed for `idle_max`.
    async fn idle(&self, idle_max: Duration) {
        loop {
            let (last, is_held) = {
                let state = self.state();
                (state.last, state.held > 0)
            };
            let now = Instant::now();
            // The end of a hold counts as activity, so nothing is due before that.
            let deadline = if is_held { now } else { last } + idle_max;
            if deadline <= now {
                return;
            }
            sleep_until(deadline).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, ActivityState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ActivityHold {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.held -= 1;
        state.last = Instant::now();
    }
}
