//! The standard input of a running program: other threads write it, its io thread reads it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::weakened::{self, Wall};

/// How many bytes the program may leave unread, those in its pipe included.
pub const INPUT_BYTES_MAX: usize = 1 << 20;
/// How long a write waits for the io thread to look how much is still in the pipe.
const LOOK_WAIT: Duration = Duration::from_millis(50);

/// Bytes on their way to a program's standard input.
///
/// Any thread may write. A write that does not fit takes nothing. The io thread of the run takes
/// the bytes in order, wakes by [`AsFd`], and tells when the program closes its end.
#[derive(Debug)]
pub struct InputQueue {
    state: Mutex<InputState>,
    looked: Condvar,
    wake: EventFd,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct InputState {
    queued: VecDeque<u8>,
    /// Bytes that were taken and that the program has not read, when the io thread last looked.
    taken_unread: usize,
    /// A writer waits until the io thread has looked again.
    look_wanted: bool,
    closed: bool,
    gone: bool,
}

/// Why input was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// It does not fit beside what the program has not read yet.
    #[error("{unread_bytes} bytes of input are unread")]
    Full {
        /// Bytes that the program has not read.
        unread_bytes: usize,
    },
    /// The queue was closed before.
    #[error("standard input is closed")]
    Closed,
    /// The program closed its end, or has ended.
    #[error("the program has closed its standard input")]
    Gone,
}

impl InputQueue {
    /// An empty queue for [`INPUT_BYTES_MAX`]. Uses one descriptor.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        Self::with_bytes_max(INPUT_BYTES_MAX)
    }

    /// As [`InputQueue::new`], for `bytes_max` bytes.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn with_bytes_max(bytes_max: usize) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_value_and_flags(0, flags)?;
        Ok(Self { state: Mutex::default(), looked: Condvar::new(), wake, bytes_max })
    }

    /// Queues all of `bytes`, or nothing. Waits a moment only if they fit no longer by the last count
    /// of what the program has not read.
    ///
    /// # Errors
    /// Why nothing was taken.
    pub fn write(&self, bytes: &[u8]) -> Result<(), InputError> {
        let mut state = self.writable()?;
        if !self.fits(&state, bytes) && state.taken_unread > 0 {
            state.look_wanted = true;
            self.wake();
            let waited = self.looked.wait_timeout_while(state, LOOK_WAIT, |s| s.look_wanted);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            state = self.writable()?;
        }
        if !self.fits(&state, bytes) {
            return Err(InputError::Full { unread_bytes: state.unread() });
        }
        state.queued.extend(bytes);
        drop(state);
        self.wake();
        Ok(())
    }

    /// Ends the input: the program reads end of file after what is queued.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake();
    }

    /// Whether [`InputQueue::write`] can still take bytes.
    pub fn is_open(&self) -> bool {
        let state = self.lock();
        !state.closed && !state.gone
    }

    /// Bytes that the program has not read, as last counted.
    pub fn unread_bytes(&self) -> usize {
        self.lock().unread()
    }

    /// Takes the oldest bytes, at most `bytes_max`, and whether no more will follow them. Until the
    /// next change the queue's descriptor is not readable.
    pub fn take(&self, bytes_max: usize) -> (Vec<u8>, bool) {
        let mut state = self.lock();
        // Under the lock: a later write wakes again.
        let _ = self.wake.read();
        let count = bytes_max.min(state.queued.len());
        let taken: Vec<u8> = state.queued.drain(..count).collect();
        state.taken_unread += taken.len();
        if state.queued.is_empty() {
            state.queued.shrink_to(0);
        }
        (taken, state.closed && state.queued.is_empty())
    }

    /// Sets how many of the taken bytes the program has not read.
    pub fn looked(&self, taken_unread: usize) {
        let mut state = self.lock();
        state.taken_unread = taken_unread;
        state.look_wanted = false;
        self.looked.notify_all();
    }

    /// Drops what is queued: the program reads no more.
    pub fn reader_gone(&self) {
        let mut state = self.lock();
        *state = InputState { closed: state.closed, gone: true, ..InputState::default() };
        self.looked.notify_all();
    }

    fn writable(&self) -> Result<MutexGuard<'_, InputState>, InputError> {
        let state = self.lock();
        match (state.closed, state.gone) {
            (true, _) => Err(InputError::Closed),
            (_, true) => Err(InputError::Gone),
            _ => Ok(state),
        }
    }

    fn fits(&self, state: &InputState, bytes: &[u8]) -> bool {
        let fits = state.unread().saturating_add(bytes.len()) <= self.bytes_max;
        fits || weakened::lacks(Wall::Input)
    }

    fn wake(&self) {
        // It fails only if the counter is at its maximum, which reads as woken.
        let _ = self.wake.write(1);
    }

    fn lock(&self) -> MutexGuard<'_, InputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InputState {
    fn unread(&self) -> usize {
        self.queued.len() + self.taken_unread
    }
}

impl AsFd for InputQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_woken(queue: &InputQueue) -> bool {
        let mut wake = [PollFd::new(queue.as_fd(), PollFlags::POLLIN)];
        poll(&mut wake, PollTimeout::ZERO).unwrap() > 0
    }

    #[test]
    fn a_write_that_does_not_fit_takes_nothing() {
        let queue = InputQueue::with_bytes_max(4).unwrap();
        queue.write(b"abc").unwrap();
        assert_eq!(queue.write(b"de"), Err(InputError::Full { unread_bytes: 3 }));
        queue.write(b"d").unwrap();
        assert_eq!(queue.take(10), (b"abcd".to_vec(), false));
        assert_eq!(queue.unread_bytes(), 4, "taken bytes count until they are read");
        queue.looked(1);
        queue.write(b"efg").unwrap();
        assert_eq!(queue.write(b"h"), Err(InputError::Full { unread_bytes: 4 }));
    }

    #[test]
    fn a_full_queue_is_counted_again_before_a_write_is_refused() {
        let queue = Arc::new(InputQueue::with_bytes_max(4).unwrap());
        queue.write(b"abcd").unwrap();
        queue.take(4);
        let reader = Arc::clone(&queue);
        let counts = std::thread::spawn(move || {
            let mut wake = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
            poll(&mut wake, PollTimeout::NONE).unwrap();
            // The program has read all of it meanwhile.
            reader.looked(0);
        });
        let written = queue.write(b"efgh");
        counts.join().unwrap();
        // On a machine that is too busy to count in time, the answer is the last count.
        assert!(matches!(written, Ok(()) | Err(InputError::Full { unread_bytes: 4 })));
        let again = if written.is_ok() { b"" } else { &b"efgh"[..] };
        queue.write(again).unwrap();
        assert_eq!(queue.take(10).0, b"efgh");
    }

    #[test]
    fn what_is_queued_is_read_before_the_end() {
        let queue = InputQueue::new().unwrap();
        assert!(!is_woken(&queue));
        queue.write(b"abc").unwrap();
        queue.close();
        assert!(is_woken(&queue) && !queue.is_open());
        assert_eq!(queue.write(b"d"), Err(InputError::Closed));
        assert_eq!(queue.take(2), (b"ab".to_vec(), false));
        assert_eq!(queue.take(2), (b"c".to_vec(), true));
        assert!(!is_woken(&queue));
    }

    #[test]
    fn nothing_is_written_for_a_reader_that_is_gone() {
        let queue = InputQueue::new().unwrap();
        queue.write(b"abc").unwrap();
        queue.reader_gone();
        assert_eq!(queue.write(b"d"), Err(InputError::Gone));
        assert_eq!((queue.unread_bytes(), queue.is_open()), (0, false));
    }
}
