//! The id of one request, which appears in all its log lines and in the answer.
//!
//! The id is stored in a thread-local while a thread works for the request, so code that logs need
//! not know about requests.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// The longest id accepted from a client, bytes.
const BYTES_MAX: usize = 128;

/// A random number that distinguishes the ids of this process from those of others.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
/// How many ids were made.
static MADE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The request that this thread works for.
    static CURRENT: RefCell<Option<RequestId>> = const { RefCell::new(None) };
}

/// A request id, valid in a log line and in a header without escapes: 1 to 128 bytes of
/// `A-Z a-z 0-9 . _ -`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// Parses a client's id. Returns `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let is_well_formed = (1..=BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(is_plain);
        let text = std::str::from_utf8(bytes).ok().filter(|_| is_well_formed)?;
        Some(Self(text.into()))
    }

    /// Makes an id that is unique among all requests and processes.
    pub fn make() -> Self {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        Self(format!("{:016x}-{number:x}", *PROCESS).into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the request that this thread works for.
    pub fn current() -> Option<Self> {
        // The thread-local is gone when the thread ends.
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    /// Runs `work` with this request as the thread's current one.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        on_behalf_of(Some(self.clone()), work)
    }

    /// As [`RequestId::during`], for a future, which several threads may poll.
    pub async fn throughout<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| self.during(|| work.as_mut().poll(cx))).await
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Runs `work` with `id` as the thread's current request, or without one.
pub fn on_behalf_of<T>(id: Option<RequestId>, work: impl FnOnce() -> T) -> T {
    let _before = PreviousRequest::replace_by(id);
    work()
}

/// The thread's previous request, which becomes current again on drop.
struct PreviousRequest(Option<RequestId>);

impl PreviousRequest {
    fn replace_by(id: Option<RequestId>) -> Self {
        Self(CURRENT.try_with(|current| current.replace(id)).ok().flatten())
    }
}

impl Drop for PreviousRequest {
    fn drop(&mut self) {
        let before = self.0.take();
        let _ = CURRENT.try_with(|current| current.replace(before));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn current() -> Option<String> {
        RequestId::current().map(|id| id.to_string())
    }

    #[test]
    fn only_well_formed_names_are_taken() {
        let longest = "a".repeat(BYTES_MAX);
        for text in ["a", "0", "Az09._-", "7c9e6679-7425-40de-944b-e07fc1f90ae7", &longest] {
            assert_eq!(RequestId::parse(text.as_bytes()).unwrap().as_str(), text);
        }
        let too_long = "a".repeat(BYTES_MAX + 1);
        for text in ["", " ", "a b", "a\n", "a=b", "a\"", "ä", "a/b", "a\x1b[m", "a,b", &too_long]
        {
            assert_eq!(RequestId::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(RequestId::parse(b"a\xFF"), None);
    }

    #[test]
    fn made_names_are_well_formed_and_never_the_same() {
        let made: HashSet<String> = (0..1000).map(|_| RequestId::make().to_string()).collect();
        assert_eq!(made.len(), 1000);
        assert!(made.iter().all(|text| RequestId::parse(text.as_bytes()).is_some()));
    }

    #[test]
    fn a_thread_works_for_a_request_no_longer_than_that_lasts() {
        let (outer, inner) = (RequestId::make(), RequestId::make());
        assert_eq!(current(), None);
        outer.during(|| {
            assert_eq!(RequestId::current(), Some(outer.clone()));
            let panicked = std::panic::catch_unwind(|| inner.during(|| panic!("on the way")));
            assert!(panicked.is_err());
            assert_eq!(RequestId::current(), Some(outer.clone()));
        });
        assert_eq!(current(), None);
    }

    #[test]
    fn work_for_another_thread_takes_its_request_along() {
        let id = RequestId::make();
        let carried = id.during(RequestId::current);
        let thread = std::thread::spawn(|| on_behalf_of(carried, current));
        assert_eq!(thread.join().unwrap(), Some(id.to_string()));
    }

    #[test]
    fn futures_that_take_turns_on_a_thread_keep_their_own() {
        let (first, second) = (RequestId::make(), RequestId::make());
        let twice = || {
            let mut seen = Vec::new();
            poll_fn(move |_| {
                seen.push(current());
                if seen.len() < 2 { Poll::Pending } else { Poll::Ready(std::mem::take(&mut seen)) }
            })
        };
        let mut futures = [pin!(first.throughout(twice())), pin!(second.throughout(twice()))];
        let mut cx = Context::from_waker(Waker::noop());
        for future in &mut futures {
            assert!(future.as_mut().poll(&mut cx).is_pending());
        }
        for (future, id) in futures.iter_mut().zip([&first, &second]) {
            let want = Some(id.to_string());
            assert_eq!(future.as_mut().poll(&mut cx), Poll::Ready(vec![want.clone(), want]));
        }
        assert_eq!(current(), None);
    }
}
