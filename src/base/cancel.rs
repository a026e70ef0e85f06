//! A request to stop that any thread can make and a poll loop can wait for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// A cancel flag over an eventfd: cloned freely, raised once, never lowered.
#[derive(Debug, Clone)]
pub struct CancelToken(Arc<EventFd>);

impl CancelToken {
    /// A token nobody has raised yet. Costs one descriptor.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_value_and_flags(0, flags)?)))
    }

    /// Asks for the end of whatever polls this token.
    pub fn cancel(&self) {
        // The one failure is a counter at its maximum, which reads as raised too.
        let _ = self.0.write(1);
    }
}

impl AsFd for CancelToken {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
