//! The host's end of the connection to a guest.

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

/// The step name of session failures.
pub const STEP: &str = "guest";
/// How often to check whether the machine has ended or the run was cancelled.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const BUFFER_BYTES: usize = 64 * 1024;

/// A connection to a guest.
#[derive(Debug)]
pub struct GuestConnection {
    stream: UnixStream,
    decoder: FrameDecoder,
    over: bool,
}

/// The outcome of booting a guest.
#[derive(Debug)]
pub enum BootOutcome {
    /// The guest is ready to run programs.
    Ready(GuestConnection, Capabilities),
    /// The guest cannot run programs, and says why.
    Unable(Unavailable),
    /// The run was cancelled before the guest was ready.
    Cancelled,
}

impl GuestConnection {
    /// The connection over `stream`.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, decoder: FrameDecoder::default(), over: false }
    }

    /// Waits for the connection of the machine's guest, and for its hello.
    ///
    /// # Errors
    /// There was no hello before `boot`, the machine has ended, or the hello is invalid.
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
                return Err(failed(&format!("it did not boot: {over}")));
            }
            if boot.passed() {
                return Err(failed("it did not boot in time"));
            }
        }
        let (stream, _) =
            machine.calls().accept().map_err(|error| SetupFailure::from_io(STEP, &error))?;
        let mut connection = Self::new(stream);
        while !connection.over {
            if let Some(frame) = connection.next()? {
                let Frame::Hello(hello) = frame else { break };
                return connection.greeted(hello);
            }
            connection.read(boot)?;
        }
        Err(failed("it sent no hello"))
    }

    fn greeted(
        self,
        HelloMessage { version, capabilities }: HelloMessage,
    ) -> Result<BootOutcome, SetupFailure> {
        let failed = |reason: String| SetupFailure::from_words(STEP, reason);
        if version != VERSION {
            return Err(failed(format!(
                "it has protocol version {version}, the host has {VERSION}"
            )));
        }
        match capabilities {
            Ok(told) => {
                let capabilities = told.checked().map_err(|lie| failed(lie.to_string()))?;
                Ok(BootOutcome::Ready(self, capabilities))
            }
            Err(reason) => {
                let reason = shown(&reason);
                Ok(BootOutcome::Unable(Unavailable(format!("the guest: {reason}"))))
            }
        }
    }

    /// The next frame that was read completely.
    pub fn next(&mut self) -> Result<Option<Frame>, SetupFailure> {
        self.decoder.next().map_err(|fault| SetupFailure::from_words(STEP, fault.to_string()))
    }

    /// Reads available bytes.
    ///
    /// # Errors
    /// Nothing arrived before `deadline`, or the guest disconnected within a frame.
    pub fn read(&mut self, deadline: Deadline) -> Result<(), SetupFailure> {
        let failed = |reason: &str| SetupFailure::from_words(STEP, reason);
        let mut buffer = vec![0; BUFFER_BYTES];
        let read = match read_by(&mut self.stream, &mut buffer, deadline) {
            // The guest closed the connection with unread data.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            read => read,
        };
        match read {
            Ok(0) if self.decoder.is_inside() => Err(failed("it disconnected within a frame")),
            Ok(0) => {
                self.over = true;
                Ok(())
            }
            Ok(count) => {
                self.decoder.take(buffer.get(..count).unwrap_or_default());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(failed("it sent nothing in time"))
            }
            Err(error) => Err(SetupFailure::from_io(STEP, &error)),
        }
    }

    /// Whether the guest has disconnected.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Sends a frame.
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

/// Whether `cancel` is raised.
pub fn is_raised(cancel: &CancelToken) -> bool {
    is_readable(cancel, Duration::ZERO)
}

/// Whether `source` becomes readable within `wait`.
fn is_readable(source: &impl AsFd, wait: Duration) -> bool {
    let mut waited = [PollFd::new(source.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
    poll(&mut waited, timeout).is_ok_and(|count| count > 0)
}
