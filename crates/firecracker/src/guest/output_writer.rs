//! Sends a program's output to the host on a separate thread, so that the run does not wait for it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::session::frame::{CHUNK_BYTES_MAX, Frame, WINDOW_BYTES};
use crate::socket::write_by;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{OutputSink, Stream};

/// The most queued bytes, besides those added last.
const QUEUE_BYTES_MAX: usize = 256 * 1024;

/// The bytes of a frame besides its output.
const HEAD_BYTES: usize = 5;

/// The writer of a run's output.
#[derive(Debug)]
pub struct OutputWriter(Arc<OutputShared>);

/// Receives the host's acknowledgements.
#[derive(Debug)]
pub struct Acknowledger(Arc<OutputShared>);

/// The sink for a run's output.
#[derive(Debug)]
pub struct FrameQueueSink(Arc<OutputShared>);

#[derive(Debug)]
struct OutputShared {
    queue: Mutex<FrameQueue>,
    changed: Condvar,
    room: EventFd,
}

#[derive(Debug, Default)]
struct FrameQueue {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Whether a frame is being written.
    busy: bool,
    /// The bytes that were written but not acknowledged.
    under_way: usize,
    /// No more frames are added or can be sent.
    closed: bool,
}

impl OutputWriter {
    /// Starts the thread that sends the sink's data to `host`.
    pub fn start(mut host: UnixStream) -> io::Result<Self> {
        let room = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let shared = OutputShared { queue: Mutex::default(), changed: Condvar::new(), room };
        let shared = Arc::new(shared);
        let sending = Arc::clone(&shared);
        thread::Builder::new().name("output".to_owned()).spawn(move || {
            while let Some(frame) = sending.next() {
                // No time limit: the host kills the machine first.
                let deadline = Deadline::after(std::time::Duration::MAX);
                if write_by(&mut host, &frame, deadline).is_err() {
                    sending.close();
                    return;
                }
                sending.sent(frame.len());
            }
        })?;
        Ok(Self(shared))
    }

    /// The sink for a run's output.
    pub fn sink(&self) -> FrameQueueSink {
        FrameQueueSink(Arc::clone(&self.0))
    }

    /// The receiver of acknowledgements.
    pub fn taken(&self) -> Acknowledger {
        Acknowledger(Arc::clone(&self.0))
    }

    /// Waits until all frames are written.
    pub fn finish(self, deadline: Deadline) {
        let mut queue = self.0.lock();
        while !queue.closed && (queue.busy || !queue.frames.is_empty()) && !deadline.passed() {
            let waited = self.0.changed.wait_timeout(queue, deadline.remaining());
            queue = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(queue, _)| queue);
        }
        queue.closed = true;
        self.0.changed.notify_all();
    }
}

impl OutputShared {
    fn lock(&self) -> MutexGuard<'_, FrameQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Vec<u8>> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            let next = queue.frames.front().map(Vec::len);
            if next.is_some_and(|bytes| queue.under_way + bytes <= WINDOW_BYTES)
                && let Some(frame) = queue.frames.pop_front()
            {
                queue.busy = true;
                queue.under_way += frame.len();
                return Some(frame);
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn sent(&self, bytes: usize) {
        let mut queue = self.lock();
        queue.busy = false;
        queue.bytes = queue.bytes.saturating_sub(bytes);
        if queue.bytes < QUEUE_BYTES_MAX {
            let _ = self.room.write(1);
        }
        self.changed.notify_all();
    }

    /// Drops all frames, because the host has disconnected, so that the run does not wait for room.
    fn close(&self) {
        let mut queue = self.lock();
        *queue = FrameQueue { closed: true, ..FrameQueue::default() };
        let _ = self.room.write(1);
        self.changed.notify_all();
    }
}

impl Acknowledger {
    /// Records that the host has read one frame with this much output.
    pub fn note(&self, bytes: u32) {
        let mut queue = self.0.lock();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        queue.under_way = queue.under_way.saturating_sub(bytes.saturating_add(HEAD_BYTES));
        self.0.changed.notify_all();
    }
}

impl OutputSink for FrameQueueSink {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let mut queue = self.0.lock();
        for chunk in bytes.chunks(CHUNK_BYTES_MAX) {
            if queue.closed {
                return;
            }
            if let Ok(frame) = Frame::Output(stream, chunk.to_vec()).encode() {
                queue.bytes += frame.len();
                queue.frames.push_back(frame);
            }
        }
        self.0.changed.notify_all();
    }

    fn is_only_reader(&self) -> bool {
        true
    }

    fn has_room(&self) -> bool {
        let queue = self.0.lock();
        let has_room = queue.bytes < QUEUE_BYTES_MAX;
        if !has_room {
            // Reset under the lock, so that the next signal is not missed.
            let _ = self.0.room.read();
        }
        has_room
    }

    fn room_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.room.as_fd())
    }
}
