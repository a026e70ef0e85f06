//! A callback that stops an operation early.

use std::fmt;
use std::io::{self, Read, Write};

use crate::error::WorkspaceFault;

/// Bytes that are copied between two checks.
const PIECE_BYTES: u64 = 1 << 20;

/// Called before each entry and each piece of a file. When it returns true, the operation ends with
/// [`WorkspaceError::Stopped`](crate::WorkspaceError::Stopped).
#[derive(Clone, Copy)]
pub struct StopCheck<'a>(pub &'a dyn Fn() -> bool);

impl StopCheck<'static> {
    /// Never stops the operation.
    pub fn never() -> Self {
        Self(&|| false)
    }
}

impl StopCheck<'_> {
    /// Whether the operation has to end.
    pub fn is_set(self) -> bool {
        (self.0)()
    }

    pub(crate) fn check(self) -> Result<(), WorkspaceFault> {
        if self.is_set() { Err(WorkspaceFault::Stopped) } else { Ok(()) }
    }

    /// As [`StopCheck::is_set`], for operations with errors of I/O.
    ///
    /// # Errors
    /// The operation has to end.
    pub fn check_io(self) -> io::Result<()> {
        if self.is_set() { Err(io::Error::other("stopped")) } else { Ok(()) }
    }

    /// Copies all of `from` to `to`.
    ///
    /// # Errors
    /// A read or a write failed, or the operation has to end.
    pub fn copy(self, from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
        loop {
            self.check_io()?;
            // By reference: the kernel then copies from file to file.
            if io::copy(&mut from.by_ref().take(PIECE_BYTES), to)? < PIECE_BYTES {
                return Ok(());
            }
        }
    }
}

impl fmt::Debug for StopCheck<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("StopCheck")
    }
}

/// A stream of which each read first asks `stop`.
pub(crate) struct StoppableRead<'a, R> {
    pub(crate) stream: R,
    pub(crate) stop: StopCheck<'a>,
}

impl<R: Read> Read for StoppableRead<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stop.check_io()?;
        self.stream.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_copy_asks_before_each_piece_and_is_whole_unless_it_is_stopped() {
        let contents = vec![7; 3 * (1 << 20) + 5];
        for asked_max in [1, 2, 4, 5] {
            let asked = Cell::new(0);
            let is_over = || {
                asked.set(asked.get() + 1);
                asked.get() >= asked_max
            };
            let mut copied = Vec::new();
            let ended = StopCheck(&is_over).copy(&mut contents.as_slice(), &mut copied);
            assert_eq!(ended.is_ok(), asked_max == 5);
            assert_eq!(copied.len(), contents.len().min((asked_max - 1) << 20));
        }
    }
}
