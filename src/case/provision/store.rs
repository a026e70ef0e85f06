//! Environments that trials share: each is made once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::evaluation::cache::{Making, WaitEnded};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// The environments of this process by their keys. Clones are the same one.
///
/// One at a time makes the environment of a key, and the others wait. What fails is not kept: each that waited then
/// tries by itself, one after the other, since a network that failed may be back. Of more environments than allowed
/// the one is dropped that was not used for the longest time; who has a clone of it keeps that.
#[derive(Debug, Clone)]
pub struct ProvisionStore<T>(Arc<StoredEnvironments<T>>);

#[derive(Debug)]
struct StoredEnvironments<T> {
    making: Making,
    kept: Mutex<BTreeMap<String, StoredEnvironment<T>>>,
    count_max: usize,
}

#[derive(Debug)]
struct StoredEnvironment<T> {
    value: T,
    used_at: Instant,
}

/// An environment of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedProvision<T> {
    /// What was made.
    pub value: T,
    /// Whether it was there already, made for another trial.
    pub is_shared: bool,
}

/// Why there is no environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShareEnded<E> {
    /// The wait for another that makes it was cancelled.
    Cancelled,
    /// The wait took too long.
    Expired,
    /// It could not be made.
    Failed(E),
}

impl<T: Clone> ProvisionStore<T> {
    /// A store of at most `count_max` environments.
    pub fn new(count_max: usize) -> Self {
        let (making, kept) = Default::default();
        Self(Arc::new(StoredEnvironments { making, kept, count_max }))
    }

    /// The environment with `key`, which `make` makes if there is none. `cancel` and `deadline` end the wait for another
    /// that makes it; `make` has a deadline of its own, so that a wait takes nothing from it.
    ///
    /// # Errors
    /// The wait has ended, or `make` has failed.
    pub fn share<E>(
        &self,
        key: &str,
        cancel: &CancelToken,
        deadline: Deadline,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<SharedProvision<T>, ShareEnded<E>> {
        let entered = self.0.making.enter(key, cancel, deadline);
        let _turn = entered.map_err(|ended| match ended {
            WaitEnded::Cancelled => ShareEnded::Cancelled,
            WaitEnded::Expired => ShareEnded::Expired,
        })?;
        if let Some(value) = self.find(key) {
            return Ok(SharedProvision { value, is_shared: true });
        }
        let value = make().map_err(ShareEnded::Failed)?;
        self.keep(key, &value);
        Ok(SharedProvision { value, is_shared: false })
    }

    fn find(&self, key: &str) -> Option<T> {
        let mut kept = self.lock();
        let found = kept.get_mut(key)?;
        found.used_at = Instant::now();
        Some(found.value.clone())
    }

    fn keep(&self, key: &str, value: &T) {
        let mut dropped = Vec::new();
        let mut kept = self.lock();
        let stored = StoredEnvironment { value: value.clone(), used_at: Instant::now() };
        kept.insert(key.to_owned(), stored);
        while kept.len() > self.0.count_max {
            let oldest = kept.iter().min_by_key(|(_, stored)| stored.used_at);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            dropped.extend(kept.remove(&oldest));
        }
        // Files may take long to be removed.
        drop(kept);
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, StoredEnvironment<T>>> {
        // Each change leaves the map consistent.
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    #[test]
    fn an_environment_is_made_once_for_all() {
        let (store, made) = (ProvisionStore::new(2), AtomicUsize::new(0));
        let shared = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let cancel = CancelToken::new().unwrap();
                    let make = || Ok::<_, ()>(made.fetch_add(1, Ordering::SeqCst));
                    let found = store.share("a", &cancel, soon(), make).unwrap();
                    assert_eq!(found.value, 0);
                    shared.fetch_add(usize::from(found.is_shared), Ordering::SeqCst);
                });
            }
        });
        assert_eq!((made.into_inner(), shared.into_inner()), (1, 7));
    }

    #[test]
    fn a_failure_is_not_kept_and_those_who_waited_try_themselves() {
        let (store, tried) = (ProvisionStore::new(2), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let cancel = CancelToken::new().unwrap();
                    let make = || match tried.fetch_add(1, Ordering::SeqCst) {
                        0 => Err("down"),
                        number => Ok(number),
                    };
                    match store.share("a", &cancel, soon(), make) {
                        Ok(found) => assert_eq!(found.value, 1),
                        Err(ended) => assert_eq!(ended, ShareEnded::Failed("down")),
                    }
                });
            }
        });
        assert_eq!(tried.into_inner(), 2);
    }

    #[test]
    fn the_one_that_was_not_used_for_the_longest_time_is_dropped() {
        let (store, cancel) = (ProvisionStore::new(2), CancelToken::new().unwrap());
        let is_shared = |key: &str| {
            let made = store.share(key, &cancel, soon(), || Ok::<_, ()>(()));
            thread::sleep(Duration::from_millis(2));
            made.unwrap().is_shared
        };
        let asked = ["a", "b", "a", "c", "a", "b"].map(is_shared);
        assert_eq!(asked, [false, false, true, false, true, false]);
    }

    #[test]
    fn a_wait_ends_with_its_time_or_by_a_cancel() {
        let (store, cancel) = (ProvisionStore::new(2), CancelToken::new().unwrap());
        let outer = store.share("a", &cancel, soon(), || {
            let over = Deadline::after(Duration::ZERO);
            let make = || Ok::<_, ()>(1);
            assert_eq!(store.share("a", &cancel, over, make).unwrap_err(), ShareEnded::Expired);
            cancel.cancel();
            assert_eq!(store.share("a", &cancel, soon(), make).unwrap_err(), ShareEnded::Cancelled);
            Ok::<_, ()>(2)
        });
        assert_eq!(outer.unwrap().value, 2);
    }
}
