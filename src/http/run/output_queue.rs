//! Carries output from the thread that supervises a run to the client's stream.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use cofferdam_core::sync::watermark::Watermark;
use cofferdam_core::{OutputSink, Stream};

/// How many bytes may be queued if no output limit bounds them.
pub const QUEUED_BYTES_MAX: usize = 1 << 20;

/// The sending end, on the supervising thread.
#[derive(Debug)]
pub struct QueueSink {
    pieces: UnboundedSender<(Stream, Vec<u8>)>,
    level: Arc<Watermark>,
}

/// The receiving end, on the client's stream. After it is dropped, the output of the run is
/// discarded.
#[derive(Debug)]
pub struct OutputQueue {
    pieces: UnboundedReceiver<(Stream, Vec<u8>)>,
    level: Arc<Watermark>,
}

/// Creates a queue that has room while fewer than `bytes_max` bytes are in it.
pub fn output_queue(bytes_max: usize) -> io::Result<(QueueSink, OutputQueue)> {
    let level = Arc::new(Watermark::new(bytes_max)?);
    let (sender, receiver) = unbounded_channel();
    Ok((
        QueueSink { pieces: sender, level: Arc::clone(&level) },
        OutputQueue { pieces: receiver, level },
    ))
}

impl OutputSink for QueueSink {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        self.level.rise(bytes.len());
        // A closed receiver discards output: the disconnect either cancels the run or is ignored.
        let _ = self.pieces.send((stream, bytes.to_vec()));
    }

    fn has_room(&self) -> bool {
        // Checked again after the level, whose update can hide a concurrent close.
        self.pieces.is_closed() || self.level.has_room() || self.pieces.is_closed()
    }

    fn room_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.level.as_fd())
    }
}

impl OutputQueue {
    /// Returns the next piece, or `None` once the sink is dropped and the queue is empty.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Stream, Vec<u8>)>> {
        self.pieces
            .poll_recv(cx)
            .map(|next| next.inspect(|(_, bytes)| self.level.fall(bytes.len())))
    }
}

impl Drop for OutputQueue {
    fn drop(&mut self) {
        self.pieces.close();
        self.level.fall(0);
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
    fn a_full_queue_has_no_room_until_it_is_read() {
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
    fn a_run_never_waits_for_a_dropped_reader() {
        let (mut sink, queue) = output_queue(1).unwrap();
        sink.take(Stream::Stdout, b"ab");
        assert!(!sink.has_room());
        drop(queue);
        assert!(is_readable(&sink) && sink.has_room());
        sink.take(Stream::Stdout, b"cd");
        assert!(sink.has_room());
    }
}
