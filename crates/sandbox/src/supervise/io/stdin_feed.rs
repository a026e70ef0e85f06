//! Standard input on its way into the sandbox, bounded and never blocking.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::pipe::{CHUNK_BYTES, PipeEnd};
use crate::sys::streams;
use cofferdam_core::StdinSource;
use cofferdam_core::sync::input_queue::InputQueue;

/// Writes standard input into the sandbox.
#[derive(Debug)]
pub struct StdinFeed {
    pipe: Option<PipeEnd>,
    pending: Vec<u8>,
    written: usize,
    source: Option<InputSource>,
    /// The program's end of the terminal that `pipe` then is.
    terminal: Option<OwnedFd>,
    eof_typed: bool,
}

/// Where more input comes from.
#[derive(Debug)]
enum InputSource {
    File(File),
    Queue(Arc<InputQueue>),
}

impl StdinFeed {
    /// Feeds `pipe` from `source`.
    pub fn new(source: StdinSource, pipe: PipeEnd) -> Self {
        Self::over(source, pipe, None)
    }

    /// Types at the terminal `master` what comes from `source`, and its end as the character that
    /// ends the input of a terminal.
    pub fn of_terminal(source: StdinSource, master: PipeEnd, terminal: OwnedFd) -> Self {
        Self::over(source, master, Some(terminal))
    }

    fn over(source: StdinSource, pipe: PipeEnd, terminal: Option<OwnedFd>) -> Self {
        let (pending, source) = match source {
            // Not fed: nothing, or what somebody else feeds.
            StdinSource::Null | StdinSource::Given(_) => (Vec::new(), None),
            StdinSource::Bytes(bytes) => (bytes, None),
            StdinSource::Copied(fd) => (Vec::new(), Some(InputSource::File(File::from(fd)))),
            StdinSource::Queue(queue) => (Vec::new(), Some(InputSource::Queue(queue))),
        };
        let pipe = Some(pipe);
        let mut feed = Self { pipe, pending, written: 0, source, terminal, eof_typed: false };
        feed.close_when_done();
        feed
    }

    /// The pipe, while there is something to write into it, or its end to report to a queue.
    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        let watched = self.has_pending() || self.queue().is_some();
        self.pipe.as_ref().filter(|_| watched).map(AsFd::as_fd)
    }

    /// Whether there is something to write. Without it the pipe reports only that it has no reader.
    pub fn has_pending(&self) -> bool {
        self.written < self.pending.len()
    }

    /// The source, while its bytes are wanted. A queue also wakes the feed to count what is unread.
    pub fn source(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref()?;
        match self.source.as_ref()? {
            InputSource::File(file) => Some(file.as_fd()).filter(|_| !self.has_pending()),
            InputSource::Queue(queue) => Some(queue.as_fd()),
        }
    }

    /// Writes pending bytes as far as the pipe takes them.
    pub fn write(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let rest = self.pending.get(self.written..).unwrap_or_default();
        if rest.is_empty() {
            // Watched without pending bytes, the pipe reports nothing but the end of its reader.
            return self.reader_gone();
        }
        match pipe.write(rest) {
            Ok(count) => self.written += count,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            // The program closed its stdin, as it may.
            Err(_) => return self.reader_gone(),
        }
        if !self.has_pending() && self.queue().is_some() {
            return self.read();
        }
        self.close_when_done();
    }

    /// Reads once from the source, which is readable or at its end.
    pub fn read(&mut self) {
        match &mut self.source {
            None => return,
            Some(InputSource::File(_)) => self.read_file(),
            Some(InputSource::Queue(_)) => self.read_queue(),
        }
        self.close_when_done();
    }

    fn read_file(&mut self) {
        let Some(InputSource::File(source)) = &mut self.source else { return };
        self.pending.resize(CHUNK_BYTES, 0);
        self.written = 0;
        match source.read(&mut self.pending) {
            Ok(count) => {
                self.pending.truncate(count);
                if count == 0 {
                    self.source = None;
                }
            }
            Err(error) => {
                self.pending.clear();
                if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
                    self.source = None;
                }
            }
        }
    }

    /// Takes the next bytes once the last ones are written, and counts what is unread.
    fn read_queue(&mut self) {
        let Some(queue) = self.queue().cloned() else { return };
        let room = if self.has_pending() { 0 } else { CHUNK_BYTES };
        let (taken, is_last) = queue.take(room);
        if room > 0 {
            (self.pending, self.written) = (taken, 0);
        }
        let pipe = self.pipe.as_ref().map(AsFd::as_fd);
        let end = self.terminal.as_ref().map(AsFd::as_fd).or(pipe);
        let in_pipe = end.and_then(|end| streams::unread_bytes(end).ok());
        queue.looked(in_pipe.unwrap_or(0) + self.pending.len() - self.written);
        if is_last {
            self.source = None;
        }
    }

    fn queue(&self) -> Option<&Arc<InputQueue>> {
        match &self.source {
            Some(InputSource::Queue(queue)) => Some(queue),
            _ => None,
        }
    }

    fn reader_gone(&mut self) {
        self.pipe = None;
        if let Some(queue) = self.queue() {
            queue.reader_gone();
        }
    }

    fn close_when_done(&mut self) {
        if self.has_pending() || self.source.is_some() {
            return;
        }
        match &self.pipe {
            Some(master) if self.terminal.is_some() && !self.eof_typed => {
                self.eof_typed = true;
                (self.pending, self.written) = (vec![streams::eof_character(master.as_fd())], 0);
            }
            _ => self.pipe = None,
        }
    }
}

impl Drop for StdinFeed {
    fn drop(&mut self) {
        self.reader_gone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::io::pipe::pipe_into_sandbox;

    #[test]
    fn a_feed_writes_everything_and_then_closes() {
        let (ours, theirs) = pipe_into_sandbox().unwrap();
        let text = vec![b'x'; 300_000];
        let mut feed = StdinFeed::new(StdinSource::Bytes(text.clone()), ours);
        let reader = std::thread::spawn(move || {
            let mut read = Vec::new();
            File::from(theirs).read_to_end(&mut read).map(|_| read)
        });
        while feed.pipe().is_some() {
            feed.write();
        }
        assert_eq!(reader.join().unwrap().unwrap(), text);
    }

    #[test]
    fn a_program_that_closes_its_stdin_ends_the_feed() {
        let (ours, theirs) = pipe_into_sandbox().unwrap();
        let mut feed = StdinFeed::new(StdinSource::Bytes(b"unread".to_vec()), ours);
        drop(theirs);
        feed.write();
        assert!(feed.pipe().is_none());
    }

    #[test]
    fn a_queue_is_fed_as_it_is_written_and_closed_at_its_end() {
        let (ours, theirs) = pipe_into_sandbox().unwrap();
        let queue = Arc::new(InputQueue::new().unwrap());
        let mut feed = StdinFeed::new(StdinSource::Queue(Arc::clone(&queue)), ours);
        let mut theirs = File::from(theirs);
        let mut read = [0; 16];
        for text in [&b"one"[..], b"two"] {
            assert!(!feed.has_pending());
            queue.write(text).unwrap();
            feed.read();
            assert!(feed.has_pending());
            feed.write();
            assert_eq!(queue.unread_bytes(), 3, "it is in the pipe");
            let count = theirs.read(&mut read).unwrap();
            assert_eq!(&read[..count], text);
        }
        queue.close();
        feed.read();
        assert!(feed.pipe().is_none() && feed.source().is_none());
        assert_eq!(theirs.read(&mut read).unwrap(), 0);
    }

    #[test]
    fn a_queue_counts_what_the_program_leaves_in_its_pipe() {
        let (ours, theirs) = pipe_into_sandbox().unwrap();
        let queue = Arc::new(InputQueue::with_bytes_max(100_000).unwrap());
        let mut feed = StdinFeed::new(StdinSource::Queue(Arc::clone(&queue)), ours);
        queue.write(&[b'x'; 100_000]).unwrap();
        feed.read();
        for _ in 0..4 {
            feed.write();
        }
        assert!(feed.has_pending(), "a pipe holds less");
        assert!(queue.write(b"y").is_err());
        assert_eq!(queue.unread_bytes(), 100_000);
        File::from(theirs.try_clone().unwrap()).read_exact(&mut [0; 30_000]).unwrap();
        feed.read();
        assert_eq!(queue.unread_bytes(), 70_000);
        queue.write(&[b'y'; 30_000]).unwrap();
    }

    #[test]
    fn a_program_that_closes_its_stdin_ends_its_queue() {
        use cofferdam_core::sync::input_queue::InputError;
        let (ours, theirs) = pipe_into_sandbox().unwrap();
        let queue = Arc::new(InputQueue::new().unwrap());
        let mut feed = StdinFeed::new(StdinSource::Queue(Arc::clone(&queue)), ours);
        drop(theirs);
        assert!(feed.pipe().is_some(), "the end is watched");
        feed.write();
        assert_eq!(queue.write(b"x"), Err(InputError::Gone));
    }
}
