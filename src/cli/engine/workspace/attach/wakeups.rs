//! Signals that an attached session reacts to.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::{SigId, flag, low_level};

use crate::cli::failure::BY_SIGNAL;

/// The signals that end the command, with their exit codes.
const ENDING: [(i32, u8); 4] = [
    (SIGHUP, BY_SIGNAL + 1),
    (SIGINT, BY_SIGNAL + 2),
    (SIGQUIT, BY_SIGNAL + 3),
    (SIGTERM, BY_SIGNAL + 15),
];

/// Handles the signals while this value lives. Afterwards they are ignored, while the process exits.
#[derive(Debug)]
pub struct Wakeups {
    woken: UnixStream,
    is_resized: Arc<AtomicBool>,
    /// The exit code of the last signal that ends the command; 0 before the first.
    exit_code: Arc<AtomicUsize>,
    registered: Vec<SigId>,
}

impl Wakeups {
    /// Registers the handlers.
    pub fn begin() -> io::Result<Self> {
        let (woken, waker) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let (is_resized, exit_code) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        let mut wakeups = Self { woken, is_resized, exit_code, registered: Vec::new() };
        // The flags first, so that what is woken finds them.
        let resized = flag::register(SIGWINCH, Arc::clone(&wakeups.is_resized))?;
        wakeups.registered.push(resized);
        wakeups.registered.push(low_level::pipe::register(SIGWINCH, waker.try_clone()?)?);
        for (signal, code) in ENDING {
            let exit_code = Arc::clone(&wakeups.exit_code);
            wakeups.registered.push(flag::register_usize(signal, exit_code, code.into())?);
            wakeups.registered.push(low_level::pipe::register(signal, waker.try_clone()?)?);
        }
        Ok(wakeups)
    }

    /// The exit code of a signal that ends the command, if one arrived.
    pub fn exit_code(&self) -> Option<u8> {
        u8::try_from(self.exit_code.load(Ordering::SeqCst)).ok().filter(|code| *code > 0)
    }

    /// Whether the size of the terminal has changed since the last call.
    pub fn take_resize(&self) -> bool {
        // First, so that a signal in between wakes the next wait.
        self.drain();
        self.is_resized.swap(false, Ordering::SeqCst)
    }

    /// Makes the descriptor unreadable until the next signal.
    pub fn drain(&self) {
        let mut buffer = [0; 64];
        while (&self.woken).read(&mut buffer).is_ok_and(|count| count > 0) {}
    }
}

impl AsFd for Wakeups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }
}
