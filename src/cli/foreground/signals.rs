//! Turns SIGTERM and SIGINT into a call on a normal thread or into a raised cancel token.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};

use crate::cli::failure::BY_SIGNAL;
use cofferdam_core::sync::cancel::CancelToken;

/// The signals that a user or an orchestrator sends to end this process, with their exit codes.
const SIGNALS: [(i32, u8); 2] = [(SIGTERM, BY_SIGNAL + 15), (SIGINT, BY_SIGNAL + 2)];

/// Handles the signals while this value lives. Afterwards they are ignored, while the process cleans
/// up and exits.
#[derive(Debug)]
pub struct Signals {
    /// The exit code of the last signal; 0 before the first.
    exit_code: Arc<AtomicUsize>,
    registered: Vec<SigId>,
    caller: Option<JoinHandle<()>>,
}

impl Signals {
    /// Calls `act` for each SIGTERM and SIGINT, on a thread of its own.
    pub fn on_each(act: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (mut woken, waker) = UnixStream::pair()?;
        let mut signals = Self::writing_to(&waker)?;
        let caller = thread::Builder::new().name("signals".to_owned());
        signals.caller = Some(caller.spawn(move || {
            while woken.read_exact(&mut [0]).is_ok() {
                act();
            }
        })?);
        Ok(signals)
    }

    /// Raises the returned token at each signal; needs no thread.
    pub fn cancelling() -> io::Result<(Self, CancelToken)> {
        let (woken, waker) = UnixStream::pair()?;
        Ok((Self::writing_to(&waker)?, CancelToken::over(woken, waker)?))
    }

    /// Makes the handler write a byte to `waker` at each signal, unless its buffer is full.
    fn writing_to(waker: &UnixStream) -> io::Result<Self> {
        let mut signals = Self { exit_code: Arc::default(), registered: Vec::new(), caller: None };
        for (signal, code) in SIGNALS {
            // In this order, so that the woken thread finds the code.
            let exit_code = Arc::clone(&signals.exit_code);
            signals.registered.push(flag::register_usize(signal, exit_code, code.into())?);
            signals.registered.push(low_level::pipe::register(signal, waker.try_clone()?)?);
        }
        Ok(signals)
    }

    /// The exit code of the signal that arrived, if any.
    pub fn exit_code(&self) -> Option<u8> {
        u8::try_from(self.exit_code.load(Ordering::SeqCst)).ok().filter(|code| *code > 0)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Dropping the last waker ends the stream of the calling thread.
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
        if let Some(caller) = self.caller.take() {
            let _ = caller.join();
        }
    }
}
