//! SIGTERM and SIGINT, turned into a call on an ordinary thread or into a raised token.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};

use super::failure::BY_SIGNAL;
use cofferdam_core::sync::cancel::CancelToken;

/// The signals a user or an orchestrator ends us with, and the exit code that tells of each.
const SIGNALS: [(i32, u8); 2] = [(SIGTERM, BY_SIGNAL + 15), (SIGINT, BY_SIGNAL + 2)];

/// Acts on each signal for as long as this value lives. Afterwards
/// they are ignored: what is left to do by then is to clean up and leave.
#[derive(Debug)]
pub struct Signals {
    /// The exit code of the last one; 0 before the first.
    exit_code: Arc<AtomicUsize>,
    registered: Vec<SigId>,
    caller: Option<JoinHandle<()>>,
}

impl Signals {
    /// Calls `act` for each SIGTERM and SIGINT, on a thread of its own.
    pub fn on_each(act: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (mut woken, waker) = UnixStream::pair()?;
        let mut signals = Self::that_write_to(&waker)?;
        let caller = thread::Builder::new().name("signals".to_owned());
        signals.caller = Some(caller.spawn(move || {
            while woken.read_exact(&mut [0]).is_ok() {
                act();
            }
        })?);
        Ok(signals)
    }

    /// Those that raise the token; no thread is needed for that.
    pub fn that_cancel() -> io::Result<(Self, CancelToken)> {
        let (woken, waker) = UnixStream::pair()?;
        Ok((Self::that_write_to(&waker)?, CancelToken::over(woken, waker)?))
    }

    /// Those for each of which the handler writes a byte, unless there is no room for one more.
    fn that_write_to(waker: &UnixStream) -> io::Result<Self> {
        let mut signals = Self { exit_code: Arc::default(), registered: Vec::new(), caller: None };
        for (signal, code) in SIGNALS {
            // In this order, so that whoever is woken finds the code.
            let exit_code = Arc::clone(&signals.exit_code);
            signals.registered.push(flag::register_usize(signal, exit_code, code.into())?);
            signals.registered.push(low_level::pipe::register(signal, waker.try_clone()?)?);
        }
        Ok(signals)
    }

    /// The exit code of a process that ends because of a signal, if one came.
    pub fn exit_code(&self) -> Option<u8> {
        u8::try_from(self.exit_code.load(Ordering::SeqCst)).ok().filter(|code| *code > 0)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // The last waker to go is the end of the caller's stream.
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
        if let Some(caller) = self.caller.take() {
            let _ = caller.join();
        }
    }
}
