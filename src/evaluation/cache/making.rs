//! Entries that are being made: one at a time makes each, the others wait.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// How often one that waits looks whether it was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(100);

/// The keys of the entries that are being made. Clones are the same ones.
#[derive(Debug, Clone, Default)]
pub struct Making(Arc<KeysInWork>);

#[derive(Debug, Default)]
struct KeysInWork {
    keys: Mutex<BTreeSet<String>>,
    freed: Condvar,
}

/// The right to make one entry, until it is dropped.
#[derive(Debug)]
pub struct MakerTurn {
    making: Making,
    key: String,
}

/// Why a wait for a turn ended without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitEnded {
    /// It was cancelled.
    Cancelled,
    /// The time is over.
    Expired,
}

impl Making {
    /// Waits until no other makes the entry `key`. The caller then looks for it again.
    ///
    /// # Errors
    /// It was cancelled, or `deadline` has passed.
    pub fn enter(
        &self,
        key: &str,
        cancel: &CancelToken,
        deadline: Deadline,
    ) -> Result<MakerTurn, WaitEnded> {
        let mut keys = self.0.lock();
        while keys.contains(key) {
            if is_raised(cancel) {
                return Err(WaitEnded::Cancelled);
            }
            if deadline.passed() {
                return Err(WaitEnded::Expired);
            }
            let wait = deadline.remaining().min(CANCEL_POLL);
            let waited = self.0.freed.wait_timeout(keys, wait);
            keys = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        keys.insert(key.to_owned());
        Ok(MakerTurn { making: self.clone(), key: key.to_owned() })
    }
}

impl KeysInWork {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // Each change leaves the set consistent.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MakerTurn {
    fn drop(&mut self) {
        self.making.0.lock().remove(&self.key);
        self.making.0.freed.notify_all();
    }
}

/// Whether `cancel` is raised.
pub fn is_raised(cancel: &CancelToken) -> bool {
    let mut polled = [PollFd::new(cancel.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    #[test]
    fn one_makes_an_entry_and_the_others_wait_for_it() {
        let (making, made) = (Making::default(), AtomicUsize::new(0));
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let cancel = CancelToken::new().unwrap();
                    let _turn = making.enter("a", &cancel, soon()).unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let _ = made.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!((most.into_inner(), made.into_inner()), (1, 1));
    }

    #[test]
    fn other_entries_are_made_meanwhile_and_a_wait_ends() {
        let (making, cancel) = (Making::default(), CancelToken::new().unwrap());
        let _a = making.enter("a", &cancel, soon()).unwrap();
        let _b = making.enter("b", &cancel, soon()).unwrap();
        let over = Deadline::after(Duration::ZERO);
        assert_eq!(making.enter("a", &cancel, over).err(), Some(WaitEnded::Expired));
        cancel.cancel();
        assert_eq!(making.enter("a", &cancel, soon()).err(), Some(WaitEnded::Cancelled));
    }
}
