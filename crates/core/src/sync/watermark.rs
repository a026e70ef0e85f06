//! A byte count for a queue between two threads, with a descriptor that signals a decrease.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// The number of bytes in a queue. One thread adds bytes and may wait for room in a poll loop;
/// another thread removes them.
#[derive(Debug)]
pub struct Watermark {
    bytes: AtomicUsize,
    bytes_max: usize,
    fell: EventFd,
}

impl Watermark {
    /// Creates the watermark of an empty queue, which has room while it holds fewer than `bytes_max`
    /// bytes. Uses one descriptor.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(bytes_max: usize) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let fell = EventFd::from_value_and_flags(0, flags)?;
        Ok(Self { bytes: AtomicUsize::new(0), bytes_max, fell })
    }

    /// Adds `bytes` to the count.
    pub fn rise(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Subtracts `bytes` from the count. The descriptor becomes readable, even if `bytes` is 0.
    pub fn fall(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        // It fails only if the counter is at its maximum, which reads as fallen too.
        let _ = self.fell.write(1);
    }

    /// Whether the queue has room. If not, the descriptor becomes readable at the next fall.
    pub fn has_room(&self) -> bool {
        if self.is_below_max() {
            return true;
        }
        // Reset before the second check: a fall in between raises it again.
        let _ = self.fell.read();
        self.is_below_max()
    }

    fn is_below_max(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) < self.bytes_max
    }
}

impl AsFd for Watermark {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_readable(level: &Watermark) -> bool {
        let mut fds = [PollFd::new(level.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn a_full_queue_signals_the_next_fall_and_no_earlier_one() {
        let level = Watermark::new(4).unwrap();
        level.rise(3);
        assert!(level.has_room());
        level.fall(1);
        level.rise(2);
        assert!(!level.has_room() && !is_readable(&level), "an earlier fall no longer counts");
        level.fall(0);
        assert!(is_readable(&level) && !level.has_room());
        level.fall(1);
        assert!(is_readable(&level) && level.has_room());
    }
}
