//! The service's log on its way to stderr: a bounded queue and a thread that writes.
//!
//! A write to a pipe blocks while the reader does not read. Only the writer thread blocks. If the
//! queue is full, lines are dropped and counted.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use cofferdam_core::sync::counter::Counter;
use cofferdam_core::values::deadline::Deadline;

/// The maximum number of queued lines.
const WAITING_LINES_MAX: usize = 8192;
/// The maximum size of the queue in bytes. One line can contain a request's whole head.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// How long the end of the process waits for the last lines.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// Makes the line that reports how many lines were dropped.
type DropMessage = Box<dyn Fn(u64) -> Vec<u8> + Send>;

/// The sending end, cloned freely. Never waits for the reader.
#[derive(Debug, Clone)]
pub struct LogQueue(Arc<LogQueueShared>);

#[derive(Debug, Default)]
struct LogQueueShared {
    state: Mutex<LogQueueState>,
    changed: Condvar,
    dropped: Arc<Counter>,
}

#[derive(Debug, Default)]
struct LogQueueState {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines dropped since the writer last reported them.
    dropped: u64,
    /// Whether the writer holds a line that is not written yet.
    writing: bool,
}

impl LogQueue {
    /// Starts a thread that writes to `out` and reports dropped lines by `drop_message`.
    pub fn start(
        out: impl Write + AsFd + Send + 'static,
        drop_message: DropMessage,
    ) -> io::Result<Self> {
        let shared = Arc::<LogQueueShared>::default();
        let writer = Arc::clone(&shared);
        let thread = thread::Builder::new().name("log".to_owned());
        thread.spawn(move || writer.write_lines(out, &drop_message))?;
        Ok(Self(shared))
    }

    /// Returns the counter of dropped lines.
    pub fn dropped(&self) -> Arc<Counter> {
        Arc::clone(&self.0.dropped)
    }

    /// Adds a complete line, or drops it if the queue is full.
    pub fn push(&self, line: &[u8]) {
        let mut state = self.0.lock();
        let is_full = state.lines.len() >= WAITING_LINES_MAX
            || state.bytes.saturating_add(line.len()) > WAITING_BYTES_MAX;
        if is_full {
            state.dropped += 1;
            self.0.dropped.increment();
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line.to_vec());
        drop(state);
        self.0.changed.notify_all();
    }

    /// Waits until all lines are written, at most [`FLUSH_WITHIN`].
    pub fn flush(&self) {
        let is_busy = |state: &mut LogQueueState| state.writing || !state.lines.is_empty();
        let left = Deadline::after(FLUSH_WITHIN).remaining();
        // Lines that are not written by then are lost.
        let _ = self.0.changed.wait_timeout_while(self.0.lock(), left, is_busy);
    }
}

/// The logger's target. Each write is one complete line.
impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogQueueShared {
    /// Writes line after line for as long as the process lives.
    fn write_lines(&self, mut out: impl Write + AsFd, drop_message: &DropMessage) {
        loop {
            let (line, dropped) = self.next();
            let lost =
                dropped.is_some_and(|count| write_whole(&mut out, &drop_message(count)).is_err());
            if write_whole(&mut out, &line).is_err() || lost {
                // The reader is gone or the disk is full. The next line is tried again.
                self.dropped.increment();
            }
        }
    }

    /// Waits for the next line, and returns it with the number of lines dropped before it.
    fn next(&self) -> (Vec<u8>, Option<u64>) {
        let mut state = self.lock();
        state.writing = false;
        self.changed.notify_all();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len();
                state.writing = true;
                let dropped = std::mem::take(&mut state.dropped);
                return (line, (dropped > 0).then_some(dropped));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogQueueState> {
        // No update panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes all of `bytes`, and waits for room if `out` is a non-blocking pipe.
fn write_whole(out: &mut (impl Write + AsFd), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut fds = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
                match poll(&mut fds, PollTimeout::NONE) {
                    Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn drop_message(count: u64) -> Vec<u8> {
        format!("dropped {count}\n").into_bytes()
    }

    /// Returns a queue that writes to a pipe, and the pipe's reading end.
    fn queue() -> (LogQueue, io::PipeReader) {
        let (reader, writer) = io::pipe().unwrap();
        (LogQueue::start(writer, Box::new(drop_message)).unwrap(), reader)
    }

    #[test]
    fn lines_are_written_whole_and_in_order() {
        let (queue, mut reader) = queue();
        let lines: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        lines.split_inclusive('\n').for_each(|line| queue.push(line.as_bytes()));
        let mut read = vec![0; lines.len()];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), lines);
        queue.flush();
        assert_eq!(queue.dropped().get(), 0);
    }

    #[test]
    fn a_stalled_reader_costs_lines_and_no_time() {
        let (queue, mut reader) = queue();
        let line = [b'x'; 1023].iter().chain(b"\n").copied().collect::<Vec<u8>>();
        let pushed = 4 * (WAITING_BYTES_MAX / line.len());
        (0..pushed).for_each(|_| queue.push(&line));
        let dropped = queue.dropped().get();
        assert!(dropped > pushed as u64 / 2, "{dropped} of {pushed}");
        let state = queue.0.lock();
        assert!(state.bytes <= WAITING_BYTES_MAX && state.lines.len() <= WAITING_LINES_MAX);
        drop(state);
        // Returns although nothing was read.
        queue.flush();
        let (mut read, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        let lines_of = |read: &[u8], first: u8| {
            let lines = read.split_inclusive(|byte| *byte == b'\n');
            lines.filter(|line| line.starts_with(&[first]) && line.ends_with(b"\n")).count()
        };
        while lines_of(&read, b'x') < pushed - usize::try_from(dropped).unwrap() {
            let count = reader.read(&mut piece).unwrap();
            read.extend_from_slice(&piece[..count]);
        }
        let text = String::from_utf8(read).unwrap();
        let counts =
            text.lines().filter_map(|line| line.strip_prefix("dropped ")?.parse::<u64>().ok());
        assert_eq!(counts.sum::<u64>(), dropped, "each is reported once");
        assert_eq!(queue.dropped().get(), dropped);
    }

    #[test]
    fn empty_lines_are_bounded_too() {
        let (queue, _reader) = queue();
        (0..300_000).for_each(|_| queue.push(b"\n"));
        assert!(queue.0.lock().lines.len() <= WAITING_LINES_MAX);
        assert!(queue.dropped().get() > 0);
    }

    #[test]
    fn a_closed_reader_blocks_nothing() {
        let (queue, reader) = queue();
        drop(reader);
        (0..100).for_each(|_| queue.push(b"x\n"));
        queue.flush();
        assert!(queue.dropped().get() > 0 && queue.0.lock().lines.is_empty());
    }
}
