//! Our ends of the program's pipes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;

/// The size of one read or write.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// The supervisor's end of a pipe, or of a terminal. Reading and writing never block.
#[derive(Debug)]
pub struct PipeEnd(File);

impl PipeEnd {
    /// Of a pipe or a terminal.
    pub fn new(end: OwnedFd) -> io::Result<Self> {
        fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self(File::from(end)))
    }
}

impl Read for PipeEnd {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for PipeEnd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for PipeEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A pipe to read from: our end, and the end the sandbox writes to.
pub fn pipe_from_sandbox() -> io::Result<(PipeEnd, OwnedFd)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    Ok((PipeEnd::new(read)?, write))
}

/// A pipe to write to: our end, and the end the sandbox reads from.
pub fn pipe_into_sandbox() -> io::Result<(PipeEnd, OwnedFd)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    Ok((PipeEnd::new(write)?, read))
}
