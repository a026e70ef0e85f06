//! A request to stop that any thread can make and a poll loop can wait for.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// A cancel flag over a descriptor: cloned freely, raised once, never lowered.
#[derive(Debug, Clone)]
pub struct CancelToken(Arc<Flag>);

#[derive(Debug)]
enum Flag {
    Event(EventFd),
    /// Readable once a byte was written to the other end.
    Stream {
        woken: UnixStream,
        waker: UnixStream,
    },
}

impl CancelToken {
    /// A token nobody has raised yet. Costs one descriptor.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(Flag::Event(EventFd::from_value_and_flags(0, flags)?))))
    }

    /// One that whoever writes to the stream of `waker` raises, as a handler of signals can.
    pub fn over(woken: UnixStream, waker: UnixStream) -> io::Result<Self> {
        waker.set_nonblocking(true)?;
        Ok(Self(Arc::new(Flag::Stream { woken, waker })))
    }

    /// Asks for the end of whatever polls this token.
    pub fn cancel(&self) {
        // The one failure is a counter at its maximum or a full stream, which read as raised too.
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

/// What may end a run beside its limits.
#[derive(Debug)]
pub struct Watch {
    /// Raised by whoever wants the run to end.
    pub cancel: CancelToken,
    /// The client's socket, where a client that goes away ends its run.
    pub client: Option<OwnedFd>,
}
