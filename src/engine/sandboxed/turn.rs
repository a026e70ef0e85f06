//! Waits for a future on a thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Wakes the thread that waits.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for `future`, which other threads complete: it needs no runtime of tasks. A call before it in its
/// context holds its turn for as long as its blocks may run.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_thread_waits_until_another_has_completed_the_future() {
        let (sender, receiver) = oneshot::channel();
        let sending = thread::spawn(move || sender.send(7));
        assert_eq!(wait(receiver), Ok(7));
        assert_eq!(sending.join().unwrap(), Ok(()));
    }
}
