//! A request to stop that any thread can make and a poll loop can wait for.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::run_control::RunControl;

/// A cancel flag with a descriptor that becomes readable when the flag is raised.
///
/// Clones share the flag. It is raised at most once and never lowered.
#[derive(Debug, Clone)]
pub struct CancelToken(Arc<Flag>);

#[derive(Debug)]
enum Flag {
    Event(EventFd),
    /// Readable after a byte was written to the other end.
    Stream {
        woken: UnixStream,
        waker: UnixStream,
    },
}

impl CancelToken {
    /// Creates a token that is not raised. Uses one descriptor.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(Flag::Event(EventFd::from_value_and_flags(0, flags)?))))
    }

    /// Creates a token that any write to `waker` raises, such as a write in a signal handler.
    ///
    /// # Errors
    /// `waker` cannot be made non-blocking.
    pub fn over(woken: UnixStream, waker: UnixStream) -> io::Result<Self> {
        waker.set_nonblocking(true)?;
        Ok(Self(Arc::new(Flag::Stream { woken, waker })))
    }

    /// Raises the flag.
    pub fn cancel(&self) {
        // It fails only if the counter is at its maximum or the stream is full; both read as raised.
        let _ = match &*self.0 {
            Flag::Event(event) => event.write(1).map_err(io::Error::from),
            Flag::Stream { waker, .. } => (&*waker).write(&[1]),
        };
    }
}

impl AsFd for CancelToken {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &*self.0 {
            Flag::Event(event) => event.as_fd(),
            Flag::Stream { woken, .. } => woken.as_fd(),
        }
    }
}

/// What can change or end a run besides its limits.
#[derive(Debug)]
pub struct Watch {
    /// Ends the run when it is raised.
    pub cancel: CancelToken,
    /// The client's socket, if a disconnect of the client ends the run.
    pub client: Option<OwnedFd>,
    /// Orders to the run, if it takes any.
    pub control: Option<RunControl>,
}

impl Watch {
    /// Watches only `cancel`.
    pub fn of(cancel: CancelToken) -> Self {
        Self { cancel, client: None, control: None }
    }
}
