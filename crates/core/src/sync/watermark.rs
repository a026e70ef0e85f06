//! How many bytes wait between two threads, and a descriptor that tells when they get fewer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// The level of a queue of bytes. One thread puts in and may wait for room in
/// a poll loop; another takes out.
#[derive(Debug)]
pub struct Watermark {
    bytes: AtomicUsize,
    bytes_max: usize,
    fell: EventFd,
}

impl Watermark {
    /// Of an empty queue that has room while fewer than `bytes_max` bytes wait
    /// in it. Costs one descriptor.
    pub fn new(bytes_max: usize) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let fell = EventFd::from_value_and_flags(0, flags)?;
        Ok(Self { bytes: AtomicUsize::new(0), bytes_max, fell })
    }

    /// So many more bytes wait.
    pub fn rise(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// So many fewer wait; the descriptor becomes readable, even by a fall of none.
    pub fn fall(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        // The one failure is a counter at its maximum, which reads as fallen too.
        let _ = self.fell.write(1);
    }

    /// Whether there is room. Where there is none, the descriptor is readable
    /// after the next fall, and not before.
    pub fn has_room(&self) -> bool {
        if self.is_below_max() {
            return true;
        }
        // Lowered before the second look: a fall in between raises it again.
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
    fn a_full_queue_tells_of_the_next_fall_and_of_none_before() {
        let level = Watermark::new(4).unwrap();
        level.rise(3);
        assert!(level.has_room());
        level.fall(1);
        level.rise(2);
        assert!(!level.has_room() && !is_readable(&level), "an old fall counts no longer");
        level.fall(0);
        assert!(is_readable(&level) && !level.has_room());
        level.fall(1);
        assert!(is_readable(&level) && level.has_room());
    }
}
