//! Standard input on its way into the sandbox, bounded and never blocking.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use super::pipe::{CHUNK_BYTES, PipeEnd};
use cofferdam_core::StdinSource;

/// Writes standard input into the sandbox.
#[derive(Debug)]
pub struct StdinFeed {
    pipe: Option<PipeEnd>,
    pending: Vec<u8>,
    written: usize,
    source: Option<File>,
}

impl StdinFeed {
    /// Feeds `pipe` from `source`.
    pub fn new(source: StdinSource, pipe: PipeEnd) -> Self {
        let (pending, source) = match source {
            StdinSource::Null => (Vec::new(), None),
            StdinSource::Bytes(bytes) => (bytes, None),
            StdinSource::Copied(fd) => (Vec::new(), Some(File::from(fd))),
        };
        let mut feed = Self { pipe: Some(pipe), pending, written: 0, source };
        feed.close_when_done();
        feed
    }

    /// The pipe, while there is something to write into it.
    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| self.has_pending()).map(AsFd::as_fd)
    }

    /// The source, while there is room for its bytes.
    pub fn source(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().filter(|_| !self.has_pending() && self.pipe.is_some()).map(AsFd::as_fd)
    }

    /// Writes pending bytes as far as the pipe takes them.
    pub fn write(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let rest = self.pending.get(self.written..).unwrap_or_default();
        match pipe.write(rest) {
            Ok(count) => self.written += count,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            // The program closed its stdin, as it may.
            Err(_) => self.pipe = None,
        }
        self.close_when_done();
    }

    /// Reads once from the source, which is readable or at its end.
    pub fn read(&mut self) {
        let Some(source) = &mut self.source else { return };
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
        self.close_when_done();
    }

    fn has_pending(&self) -> bool {
        self.written < self.pending.len()
    }

    fn close_when_done(&mut self) {
        if !self.has_pending() && self.source.is_none() {
            self.pipe = None;
        }
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
}
