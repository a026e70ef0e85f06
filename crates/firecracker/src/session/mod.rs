//! The host's side of a session: the exchange with a guest about one run. Whatever a guest does, it
//! uses no more time, memory or output than the run's limits allow.

pub(crate) mod frame;
pub(crate) mod messages;
pub(crate) mod vsock;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::frame::{CHUNK_BYTES_MAX, Frame};
use self::messages::{ReportMessage, RunMessage, shown};
use self::vsock::{GuestConnection, STEP, is_raised};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{NotStarted, OutputSink, RunReport, SetupFailure, Stream, Watch};

/// How long to wait before a full sink without a descriptor is asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Time limit for a guest to accept a few bytes.
const LISTEN_WAIT: Duration = Duration::from_secs(1);

/// The request of a session, and its time limits.
#[derive(Debug)]
pub struct SessionRequest<'a> {
    /// The message with the run.
    pub run: RunMessage,
    /// The program's standard input.
    pub stdin: &'a [u8],
    /// The limit on each of stdout and stderr, bytes.
    pub output_bytes_max: Option<u64>,
    /// The deadline of the session, cancelled or not.
    pub over: Deadline,
    /// The time limit after a cancel.
    pub cancel_wait: Duration,
}

/// The outcome of a session.
#[derive(Debug)]
pub enum SessionOutcome {
    /// The guest reported, and the result is on the drive.
    Report(Box<RunReport>),
    /// The program did not run.
    Refused(NotStarted),
    /// The guest did not answer in time.
    Silent(PartialRun),
}

/// What is known of a run without a report.
#[derive(Debug)]
pub struct PartialRun {
    /// Whether it was cancelled.
    pub cancelled: bool,
    /// Its stdout so far.
    pub stdout: Vec<u8>,
    /// Its stderr so far.
    pub stderr: Vec<u8>,
    /// The bytes received on stdout and stderr, kept or not.
    pub received: [u64; 2],
    /// Its duration.
    pub took: Duration,
}

impl PartialRun {
    pub fn cancelled_before() -> Self {
        let (stdout, stderr) = (Vec::new(), Vec::new());
        Self { cancelled: true, stdout, stderr, received: [0; 2], took: Duration::ZERO }
    }
}

/// Sends a run to the guest and waits for its answer.
///
/// # Errors
/// The guest violated the protocol or disconnected. The program may have run.
pub fn run_session(
    connection: &mut GuestConnection,
    asked: SessionRequest<'_>,
    watch: &Watch,
    sink: &mut Option<Box<dyn OutputSink>>,
) -> Result<SessionOutcome, SetupFailure> {
    let SessionRequest { run, stdin, output_bytes_max, over, cancel_wait } = asked;
    connection.send(&Frame::Run(Box::new(run)), over)?;
    for chunk in stdin.chunks(CHUNK_BYTES_MAX) {
        connection.send(&Frame::Input(chunk.to_vec()), over)?;
    }
    let began = Instant::now();
    let mut session = Session {
        connection,
        watch,
        sink,
        over,
        cancel_wait,
        cancelled: false,
        kept: [Vec::new(), Vec::new()],
        received: [0; 2],
        output_bytes_max,
    };
    let heard = session.listen()?;
    Ok(heard.unwrap_or_else(|| {
        let [stdout, stderr] = std::mem::take(&mut session.kept);
        let Session { cancelled, received, .. } = session;
        SessionOutcome::Silent(PartialRun {
            cancelled,
            stdout,
            stderr,
            received,
            took: began.elapsed(),
        })
    }))
}

struct Session<'a> {
    connection: &'a mut GuestConnection,
    watch: &'a Watch,
    sink: &'a mut Option<Box<dyn OutputSink>>,
    over: Deadline,
    cancel_wait: Duration,
    cancelled: bool,
    kept: [Vec<u8>; 2],
    received: [u64; 2],
    output_bytes_max: Option<u64>,
}

impl Session<'_> {
    /// Waits for the answer. Returns `None` at the deadline.
    fn listen(&mut self) -> Result<Option<SessionOutcome>, SetupFailure> {
        loop {
            // Frames that are already read come first. While one waits for room, nothing is read.
            let has_room = loop {
                if !self.has_room() {
                    break false;
                }
                let Some(frame) = self.connection.next()? else { break true };
                if let Some(heard) = self.take(frame)? {
                    return Ok(Some(heard));
                }
            };
            if self.connection.is_over() {
                return Err(broken("it disconnected before its report"));
            }
            if self.over.passed() {
                return Ok(None);
            }
            self.wait(has_room)?;
        }
    }

    fn has_room(&self) -> bool {
        self.sink.as_ref().is_none_or(|sink| sink.has_room())
    }

    /// Waits for bytes if the sink has room, else for room. Then reads or cancels.
    fn wait(&mut self, has_room: bool) -> Result<(), SetupFailure> {
        let room = self.sink.as_ref().and_then(|sink| sink.room_fd()).filter(|_| !has_room);
        let mut most = self.over.remaining();
        let mut waited = Vec::with_capacity(3);
        if has_room {
            waited.push(PollFd::new(self.connection.as_fd(), PollFlags::POLLIN));
        } else if let Some(room) = room {
            waited.push(PollFd::new(room, PollFlags::POLLIN));
        } else {
            most = most.min(LOOK_AGAIN);
        }
        if !self.cancelled {
            waited.push(PollFd::new(self.watch.cancel.as_fd(), PollFlags::POLLIN));
            if let Some(client) = &self.watch.client {
                let gone = PollFlags::from_bits_retain(libc::POLLRDHUP);
                waited.push(PollFd::new(client.as_fd(), gone));
            }
        }
        // Rounded up, or the last millisecond would be a busy loop.
        let timeout = PollTimeout::try_from(most + Duration::from_millis(1));
        match poll(&mut waited, timeout.unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(SetupFailure::from_errno(STEP, errno as i32)),
        }
        let happened = |fd: &PollFd<'_>| fd.revents().is_none_or(|events| !events.is_empty());
        let readable = has_room && waited.first().is_some_and(happened);
        // The wrapper does not know POLLRDHUP, so any event counts.
        let others = waited.get(usize::from(has_room || room.is_some())..).unwrap_or_default();
        let to_cancel = !self.cancelled && others.iter().any(happened);
        if to_cancel && (is_raised(&self.watch.cancel) || self.watch.client.is_some()) {
            self.cancel()?;
        }
        if readable {
            let read = self.connection.read(self.over);
            self.unless_over(read)?;
        }
        Ok(())
    }

    /// A failure of the connection, unless the deadline has passed: then the session ends, and the
    /// failure may only say that no time was left.
    fn unless_over(&self, done: Result<(), SetupFailure>) -> Result<(), SetupFailure> {
        if self.over.passed() { Ok(()) } else { done }
    }

    fn cancel(&mut self) -> Result<(), SetupFailure> {
        self.cancelled = true;
        self.over = self.over.min(Deadline::after(self.cancel_wait));
        // A guest that does not react is killed at that deadline.
        let sent = self.connection.send(&Frame::Cancel, self.over);
        self.unless_over(sent)
    }

    fn take(&mut self, frame: Frame) -> Result<Option<SessionOutcome>, SetupFailure> {
        match frame {
            Frame::Output(stream, bytes) => {
                self.output(stream, &bytes)?;
                self.acknowledge(bytes.len())
            }
            Frame::Refused(refused) => Ok(Some(SessionOutcome::Refused(refused.into()))),
            Frame::Report(report) => self.report(*report).map(Some),
            Frame::Hello(_) | Frame::Run(_) | Frame::Input(_) | Frame::Cancel | Frame::Taken(_) => {
                Err(broken("it sent a frame that only a host may send"))
            }
        }
    }

    /// Allows the guest to send more. A guest that does not read must not block the host.
    fn acknowledge(&mut self, bytes: usize) -> Result<Option<SessionOutcome>, SetupFailure> {
        let taken = Frame::Taken(u32::try_from(bytes).unwrap_or(u32::MAX));
        let sent = self.connection.send(&taken, self.over.min(Deadline::after(LISTEN_WAIT)));
        match sent {
            // The guest may have sent its report already and disconnected.
            Ok(()) | Err(SetupFailure { errno: Some(libc::EPIPE | libc::ECONNRESET), .. }) => {
                Ok(None)
            }
            Err(_) => self.unless_over(Err(broken("it does not read"))).map(|()| None),
        }
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), SetupFailure> {
        let [stdout, stderr] = &mut self.received;
        let received = if stream == Stream::Stdout { stdout } else { stderr };
        *received = received.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if self.output_bytes_max.is_some_and(|max| *received > max) {
            return Err(broken("it sent more output than the limit"));
        }
        if let Some(sink) = self.sink.as_mut() {
            sink.take(stream, bytes);
            if sink.is_only_reader() {
                return Ok(());
            }
        }
        let [stdout, stderr] = &mut self.kept;
        let kept = if stream == Stream::Stdout { stdout } else { stderr };
        kept.extend_from_slice(bytes);
        Ok(())
    }

    fn report(&mut self, report: ReportMessage) -> Result<SessionOutcome, SetupFailure> {
        if let Some(reason) = &report.uncollected {
            let reason = shown(reason);
            return Err(SetupFailure::from_words("guest: collect", reason));
        }
        let [stdout, stderr] = std::mem::take(&mut self.kept);
        let checked = report.checked(stdout, stderr, self.received);
        let report = checked.map_err(|lie| broken(&lie.to_string()))?;
        Ok(SessionOutcome::Report(Box::new(report)))
    }
}

fn broken(reason: &str) -> SetupFailure {
    SetupFailure::from_words(STEP, reason)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::backend_tests::report;
    use cofferdam_core::Outcome;
    use cofferdam_core::sync::cancel::CancelToken;

    /// Listens to the guest at the other end of the returned connection.
    fn listening<T>(
        over: Deadline,
        mut sink: Option<Box<dyn OutputSink>>,
        test: impl FnOnce(Session<'_>, UnixStream) -> T,
    ) -> T {
        let (host, guest) = UnixStream::pair().unwrap();
        let session = Session {
            connection: &mut GuestConnection::new(host),
            watch: &Watch::of(CancelToken::new().unwrap()),
            sink: &mut sink,
            over,
            cancel_wait: Duration::ZERO,
            cancelled: false,
            kept: [Vec::new(), Vec::new()],
            received: [0; 2],
            output_bytes_max: None,
        };
        test(session, guest)
    }

    fn output() -> Frame {
        Frame::Output(Stream::Stdout, b"x".to_vec())
    }

    #[test]
    fn a_guest_that_sends_at_the_deadline_is_silent_and_no_failure() {
        listening(Deadline::after(Duration::ZERO), None, |mut session, mut guest| {
            guest.write_all(&output().encode().unwrap()).unwrap();
            // The deadline passes between the wait for output and its reading.
            session.wait(true).unwrap();
            // Or between its reading and its acknowledgement.
            assert!(session.take(output()).unwrap().is_none());
            assert!(session.listen().unwrap().is_none());
        });
    }

    #[test]
    fn a_guest_that_hangs_up_before_the_deadline_is_a_failure() {
        listening(Deadline::after(Duration::from_secs(60)), None, |mut session, mut guest| {
            guest.write_all(&[0; 3]).unwrap();
            drop(guest);
            assert!(session.listen().is_err());
        });
    }

    /// Has no room when it is asked for the first time.
    #[derive(Debug, Default)]
    struct FullOnce(AtomicBool);

    impl OutputSink for FullOnce {
        fn take(&mut self, _: Stream, _: &[u8]) {}

        fn is_only_reader(&self) -> bool {
            true
        }

        fn has_room(&self) -> bool {
            self.0.swap(true, Ordering::Relaxed)
        }
    }

    #[test]
    fn a_report_that_waits_for_room_in_the_sink_is_taken_once_there_is_room() {
        let sink = Box::new(FullOnce::default());
        listening(
            Deadline::after(Duration::from_secs(60)),
            Some(sink),
            |mut session, mut guest| {
                let message = ReportMessage::of(&report(Outcome::Exited { code: 0 }, [1, 0]), None);
                for frame in [output(), Frame::Report(Box::new(message))] {
                    guest.write_all(&frame.encode().unwrap()).unwrap();
                }
                // Both are read. No more bytes follow, and the guest does not hang up.
                session.wait(true).unwrap();
                let heard = session.listen().unwrap();
                assert!(matches!(heard, Some(SessionOutcome::Report(_))), "{heard:?}");
            },
        );
    }
}
