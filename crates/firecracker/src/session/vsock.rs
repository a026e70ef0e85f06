//! The host's end of the line to a guest.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::frame::{Frame, FrameDecoder};
use super::messages::{HelloMessage, VERSION, shown};
use crate::machine::Machine;
use crate::socket::{read_by, write_by};
use cofferdam_core::SetupFailure;
use cofferdam_core::executor::{Capabilities, Unavailable};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// The step that a failure of the conversation has.
pub const STEP: &str = "guest";
/// How often to see whether the machine is still there, and still wanted.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const BUFFER_BYTES: usize = 64 * 1024;

/// A line to a guest that has said hello.
#[derive(Debug)]
pub struct GuestConnection {
    stream: UnixStream,
    decoder: FrameDecoder,
    over: bool,
}

/// What came of waiting for a guest.
#[derive(Debug)]
pub enum BootOutcome {
    /// It is there, and can run programs.
    There(GuestConnection, Capabilities),
    /// It is there, and says why it can run nothing.
    Unable(Unavailable),
    /// Somebody asked for an end before it was there.
    Cancelled,
}

impl GuestConnection {
    /// Waits for the call of `machine`'s guest, and for its hello.
    ///
    /// # Errors
    /// None came before `boot`, the machine is over, or what the guest said is no hello.
    pub fn await_call(
        machine: &mut dyn Machine,
        boot: Deadline,
        cancel: Option<&CancelToken>,
    ) -> Result<BootOutcome, SetupFailure> {
        let failed = |reason: &str| SetupFailure::from_words(STEP, reason);
        loop {
            if cancel.is_some_and(is_raised) {
                return Ok(BootOutcome::Cancelled);
            }
            if is_readable(machine.calls(), LOOK_AGAIN.min(boot.remaining())) {
                break;
            }
            if let Some(over) = machine.is_over() {
                return Err(failed(&format!("it did not come up: {over}")));
            }
            if boot.passed() {
                return Err(failed("it did not come up in time"));
            }
        }
        let (stream, _) =
            machine.calls().accept().map_err(|error| SetupFailure::from_io(STEP, &error))?;
        let mut line = Self { stream, decoder: FrameDecoder::default(), over: false };
        while !line.over {
            if let Some(frame) = line.next()? {
                let Frame::Hello(hello) = frame else { break };
                return line.greeted(hello);
            }
            line.read(boot)?;
        }
        Err(failed("it did not say hello"))
    }

    fn greeted(
        self,
        HelloMessage { version, capabilities }: HelloMessage,
    ) -> Result<BootOutcome, SetupFailure> {
        let failed = |reason: String| SetupFailure::from_words(STEP, reason);
        if version != VERSION {
            return Err(failed(format!("it speaks version {version}, and we {VERSION}")));
        }
        match capabilities {
            Ok(told) => {
                let capabilities = told.checked().map_err(|lie| failed(lie.to_string()))?;
                Ok(BootOutcome::There(self, capabilities))
            }
            Err(reason) => {
                let reason = shown(&reason);
                Ok(BootOutcome::Unable(Unavailable(format!("the guest: {reason}"))))
            }
        }
    }

    /// The next frame of what was read.
    pub fn next(&mut self) -> Result<Option<Frame>, SetupFailure> {
        self.decoder.next().map_err(|fault| SetupFailure::from_words(STEP, fault.to_string()))
    }

    /// Reads once.
    ///
    /// # Errors
    /// Nothing came before `deadline`, or the guest hung up in the middle of a frame.
    pub fn read(&mut self, deadline: Deadline) -> Result<(), SetupFailure> {
        let failed = |reason: &str| SetupFailure::from_words(STEP, reason);
        let mut buffer = vec![0; BUFFER_BYTES];
        let read = match read_by(&mut self.stream, &mut buffer, deadline) {
            // It went without having heard everything.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            read => read,
        };
        match read {
            Ok(0) if self.decoder.is_inside() => Err(failed("it hung up in the middle of a frame")),
            Ok(0) => {
                self.over = true;
                Ok(())
            }
            Ok(count) => {
                self.decoder.take(buffer.get(..count).unwrap_or_default());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(failed("it said nothing in time"))
            }
            Err(error) => Err(SetupFailure::from_io(STEP, &error)),
        }
    }

    /// Whether the guest has hung up.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Tells the guest something.
    pub fn send(&mut self, frame: &Frame, deadline: Deadline) -> Result<(), SetupFailure> {
        let bytes =
            frame.encode().map_err(|fault| SetupFailure::from_words(STEP, fault.to_string()))?;
        write_by(&mut self.stream, &bytes, deadline)
            .map_err(|error| SetupFailure::from_io(format!("{STEP}: send"), &error))
    }
}

impl AsFd for GuestConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Whether somebody has raised `cancel`.
pub fn is_raised(cancel: &CancelToken) -> bool {
    is_readable(cancel, Duration::ZERO)
}

/// Whether `source` is readable within `wait`.
fn is_readable(source: &impl AsFd, wait: Duration) -> bool {
    let mut waited = [PollFd::new(source.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
    poll(&mut waited, timeout).is_ok_and(|count| count > 0)
}
