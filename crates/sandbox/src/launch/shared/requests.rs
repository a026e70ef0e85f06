//! Requests to PID 1 of a sandbox that lasts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::init::wire::{PROGRAM_FDS_MAX, START_REPLY_BYTES, START_REQUEST_BYTES};
use crate::sys::messages;
use cofferdam_core::SetupFailure;
use cofferdam_core::values::deadline::Deadline;

/// The step of a request.
const STEP: &str = "start program";
/// How long PID 1 may take to answer: it only clones.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The supervisor's end of the socket. One request is answered at a time.
#[derive(Debug)]
pub struct RequestSocket(Mutex<OwnedFd>);

/// Why a request has no process.
#[derive(Debug)]
pub enum RequestFailure {
    /// PID 1 could not clone one.
    Refused(i32),
    /// The request could not be made.
    Failed(SetupFailure),
    /// PID 1 does not answer as it should: the sandbox is of no use any more.
    Broken(SetupFailure),
}

impl RequestSocket {
    /// Over the socket whose other end PID 1 has.
    pub fn new(socket: OwnedFd) -> Self {
        Self(Mutex::new(socket))
    }

    /// Has PID 1 clone a process with these descriptors, numbered from 0 on; with `into_group` the
    /// last one is the directory of a group that it is cloned into. `init` is PID 1. Returns a
    /// descriptor of the process.
    ///
    /// # Errors
    /// There is no process.
    pub fn start(
        &self,
        descriptors: &[RawFd],
        into_group: bool,
        init: BorrowedFd<'_>,
    ) -> Result<OwnedFd, RequestFailure> {
        let broken = |error: io::Error| RequestFailure::Broken(SetupFailure::from_io(STEP, &error));
        let request = encode(descriptors.len(), into_group).ok_or_else(|| {
            RequestFailure::Failed(SetupFailure::from_words(STEP, "too many descriptors"))
        })?;
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        messages::send(socket.as_fd(), &request, descriptors).map_err(broken)?;
        await_answer(socket.as_fd(), init).map_err(broken)?;
        let mut reply = [0; START_REPLY_BYTES];
        let (bytes, pidfd) = messages::receive(socket.as_fd(), &mut reply).map_err(broken)?;
        match (decode(reply.get(..bytes).unwrap_or_default()), pidfd) {
            (Some(0), Some(pidfd)) => Ok(pidfd),
            (Some(errno @ 1..), None) => Err(RequestFailure::Refused(errno)),
            _ => {
                let words = "the answer is none of the init's";
                Err(RequestFailure::Broken(SetupFailure::from_words(STEP, words)))
            }
        }
    }
}

/// A request in the layout of the init's struct; `None` if there are more descriptors than it takes.
fn encode(descriptors: usize, into_group: bool) -> Option<[u8; START_REQUEST_BYTES]> {
    let count = u32::try_from(descriptors).ok().filter(|n| *n <= PROGRAM_FDS_MAX.unsigned_abs())?;
    let mut bytes = [0; START_REQUEST_BYTES];
    let words = [count, u32::from(into_group)];
    for (to, from) in bytes.iter_mut().zip(words.iter().flat_map(|word| word.to_ne_bytes())) {
        *to = from;
    }
    Some(bytes)
}

/// The errno of an answer, 0 for none; `None` for bytes that the init never writes.
fn decode(bytes: &[u8]) -> Option<i32> {
    let bytes: &[u8; START_REPLY_BYTES] = bytes.try_into().ok()?;
    let word = |at: usize| Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (errno, pid) = (word(0)?, word(4)?);
    // A process of the sandbox has a number above 1, and a failure has none.
    let is_whole = if errno == 0 { pid > 1 } else { errno > 0 && pid == 0 };
    is_whole.then_some(errno)
}

fn await_answer(socket: BorrowedFd<'_>, init: BorrowedFd<'_>) -> io::Result<()> {
    let deadline = Deadline::after(ANSWER_WAIT);
    loop {
        let left = deadline.remaining().as_millis().saturating_add(1);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut both =
            [PollFd::new(socket, PollFlags::POLLIN), PollFd::new(init, PollFlags::POLLIN)];
        match poll(&mut both, timeout) {
            Ok(0) if deadline.passed() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => {
                let [socket, _] = both;
                let came = socket.revents().is_some_and(|flags| flags.contains(PollFlags::POLLIN));
                return if came { Ok(()) } else { Err(io::ErrorKind::ConnectionReset.into()) };
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use nix::sys::socket::SockType;

    use super::*;
    use crate::launch::socket_pair;

    #[test]
    fn a_request_has_the_layout_that_the_init_reads_and_a_bound() {
        let words = |bytes: [u8; 8]| {
            [0, 4].map(|at| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()))
        };
        assert_eq!(encode(9, false).map(words), Some([9, 0]));
        assert_eq!(encode(64, true).map(words), Some([64, 1]));
        assert_eq!(encode(65, true), None);
    }

    #[test]
    fn only_what_an_init_answers_is_taken_for_an_answer() {
        let reply = |errno: i32, pid: i32| [errno.to_ne_bytes(), pid.to_ne_bytes()].concat();
        for (bytes, answer) in [
            (reply(0, 2), Some(0)),
            (reply(libc::EAGAIN, 0), Some(libc::EAGAIN)),
            (reply(0, 1), None),
            (reply(0, -1), None),
            (reply(-1, 0), None),
            (reply(libc::EAGAIN, 2), None),
            (reply(0, 2)[..7].to_vec(), None),
            (Vec::new(), None),
        ] {
            assert_eq!(decode(&bytes), answer, "{bytes:?}");
        }
    }

    /// What a request answers that is given these bytes and this descriptor.
    fn answered(bytes: &[u8], descriptor: Option<&File>) -> Result<OwnedFd, RequestFailure> {
        let (ours, theirs) = socket_pair(SockType::SeqPacket).unwrap();
        let never = File::open("/dev/null").unwrap();
        // Not readable, as PID 1 while it lives.
        let (alive, _other) = socket_pair(SockType::Stream).unwrap();
        let raw: Vec<RawFd> = descriptor.iter().map(|file| file.as_raw_fd()).collect();
        messages::send(theirs.as_fd(), bytes, &raw).unwrap();
        RequestSocket::new(ours).start(&[never.as_raw_fd()], false, alive.as_fd())
    }

    #[test]
    fn a_process_without_a_descriptor_and_a_descriptor_without_a_process_break_the_sandbox() {
        let file = File::open("/dev/null").unwrap();
        let reply = |errno: i32, pid: i32| [errno.to_ne_bytes(), pid.to_ne_bytes()].concat();
        assert!(answered(&reply(0, 5), Some(&file)).is_ok());
        assert!(matches!(answered(&reply(11, 0), None), Err(RequestFailure::Refused(11))));
        for (bytes, descriptor) in
            [(reply(0, 5), None), (reply(11, 0), Some(&file)), (reply(0, 0), Some(&file))]
        {
            let answer = answered(&bytes, descriptor);
            assert!(matches!(answer, Err(RequestFailure::Broken(_))), "{bytes:?}");
        }
    }
}
