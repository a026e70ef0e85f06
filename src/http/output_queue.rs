//! Output on its way from a run's supervising thread to its client's stream.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::spec::{OutputSink, Stream};

/// How much may wait where no output limit bounds it, bytes.
pub const QUEUED_BYTES_MAX: usize = 1 << 20;

/// The queue's level, and the descriptor that tells when it has fallen.
#[derive(Debug)]
struct Level {
    bytes: AtomicUsize,
    bytes_max: usize,
    fell: EventFd,
}

/// The end on the supervising thread.
#[derive(Debug)]
pub struct QueueSink {
    pieces: UnboundedSender<(Stream, Vec<u8>)>,
    level: Arc<Level>,
}

/// The end on the client's stream. Dropped, it lets the run write into the void.
#[derive(Debug)]
pub struct OutputQueue {
    pieces: UnboundedReceiver<(Stream, Vec<u8>)>,
    level: Arc<Level>,
}

/// A queue that has room while fewer than `bytes_max` bytes wait in it.
pub fn output_queue(bytes_max: usize) -> io::Result<(QueueSink, OutputQueue)> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let fell = EventFd::from_value_and_flags(0, flags)?;
    let level = Arc::new(Level { bytes: AtomicUsize::new(0), bytes_max, fell });
    let (sender, receiver) = unbounded_channel();
    Ok((
        QueueSink { pieces: sender, level: Arc::clone(&level) },
        OutputQueue { pieces: receiver, level },
    ))
}

impl Level {
    fn has_room(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) < self.bytes_max
    }
}

impl OutputSink for QueueSink {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        self.level.bytes.fetch_add(bytes.len(), Ordering::SeqCst);
        // A reader that has gone wants nothing more; its going ends the run, or is to be ignored.
        let _ = self.pieces.send((stream, bytes.to_vec()));
    }

    fn has_room(&self) -> bool {
        if self.pieces.is_closed() || self.level.has_room() {
            return true;
        }
        // Lowered before the second look: a fall in between raises it again.
        let _ = self.level.fell.read();
        self.pieces.is_closed() || self.level.has_room()
    }

    fn room_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.level.fell.as_fd())
    }
}

impl OutputQueue {
    /// The next piece; none once the sink is gone and everything was taken.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Stream, Vec<u8>)>> {
        self.pieces.poll_recv(cx).map(|next| {
            next.inspect(|(_, bytes)| {
                self.level.bytes.fetch_sub(bytes.len(), Ordering::SeqCst);
                let _ = self.level.fell.write(1);
            })
        })
    }
}

impl Drop for OutputQueue {
    fn drop(&mut self) {
        self.pieces.close();
        let _ = self.level.fell.write(1);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_readable(sink: &QueueSink) -> bool {
        let mut fds = [PollFd::new(sink.room_fd().unwrap(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn a_full_queue_says_so_until_it_is_read() {
        let (mut sink, mut queue) = output_queue(4).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        sink.take(Stream::Stdout, b"abc");
        assert!(sink.has_room());
        sink.take(Stream::Stderr, b"d");
        assert!(!sink.has_room() && !is_readable(&sink));
        assert_eq!(queue.poll_next(&mut cx), Poll::Ready(Some((Stream::Stdout, b"abc".to_vec()))));
        assert!(is_readable(&sink) && sink.has_room());
        drop(sink);
        assert_eq!(queue.poll_next(&mut cx), Poll::Ready(Some((Stream::Stderr, b"d".to_vec()))));
        assert_eq!(queue.poll_next(&mut cx), Poll::Ready(None));
    }

    #[test]
    fn a_run_never_waits_for_a_reader_that_has_gone() {
        let (mut sink, queue) = output_queue(1).unwrap();
        sink.take(Stream::Stdout, b"ab");
        assert!(!sink.has_room());
        drop(queue);
        assert!(is_readable(&sink) && sink.has_room());
        sink.take(Stream::Stdout, b"cd");
        assert!(sink.has_room());
    }
}
