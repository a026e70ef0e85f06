//! The messages of the init, read from its status pipe.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use crate::init::wire;
use crate::init::wire::RECORD_BYTES;
use crate::supervise::io::pipe::PipeEnd;

/// One message of the init or of the program's process before exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Set-up is done and exec is next. Without this message, a closed pipe would look like a
    /// program that started.
    Ready {
        /// `CLOCK_MONOTONIC`, nanoseconds.
        at_ns: u64,
    },
    /// The sandbox is prepared; the program waits to be resumed.
    Prepared,
    /// Step `step` failed.
    Failed {
        /// Its index in the plan.
        step: u32,
        /// The kernel's error.
        errno: i32,
    },
    /// The program ended.
    Ended {
        /// How it ended.
        status: ProgramStatus,
        /// `CLOCK_MONOTONIC`, nanoseconds.
        at_ns: u64,
    },
}

/// How a process ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramStatus {
    /// It called exit.
    Exited(u8),
    /// A signal ended it.
    Signaled(i32),
}

impl ProgramStatus {
    /// From the kernel's wait status.
    pub fn from_wait(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Exited(u8::try_from((status >> 8) & 0xff).unwrap_or(u8::MAX)),
            signal => Self::Signaled(signal),
        }
    }
}

/// Decodes a message; `None` for bytes that the init never writes.
pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Message> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (kind, step, value) = (word(0)?, word(4)?, word(8)?.cast_signed());
    let at_ns = u64::from_ne_bytes(bytes.get(16..24)?.try_into().ok()?);
    match kind {
        wire::READY => Some(Message::Ready { at_ns }),
        wire::PREPARED => Some(Message::Prepared),
        wire::FAILED => Some(Message::Failed { step, errno: value }),
        wire::ENDED => Some(Message::Ended { status: ProgramStatus::from_wait(value), at_ns }),
        _ => None,
    }
}

/// The most records of one sandbox: prepared, ready, a failure of each of the init's two processes,
/// an end.
const RECORDS_MAX: usize = 5;

/// The supervisor's end of the status pipe.
#[derive(Debug)]
pub struct StatusPipe {
    /// `None` once every writer has closed the pipe.
    end: Option<PipeEnd>,
    records: usize,
}

impl StatusPipe {
    /// Reads from `end`, which must not block.
    pub fn new(end: PipeEnd) -> Self {
        Self { end: Some(end), records: 0 }
    }

    /// The next message, if one has arrived. The init writes few records, and each whole. Anything
    /// else does not come from the init, and the sandbox cannot continue.
    pub fn next(&mut self) -> io::Result<Option<Message>> {
        let Some(end) = &mut self.end else { return Ok(None) };
        let mut bytes = [0; RECORD_BYTES];
        match end.read(&mut bytes) {
            Ok(0) => {
                self.end = None;
                Ok(None)
            }
            Ok(RECORD_BYTES) if self.records < RECORDS_MAX => {
                self.records += 1;
                decode(&bytes).map(Some).ok_or_else(not_the_init)
            }
            Ok(_) => Err(not_the_init()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The pipe, until every writer has closed it.
    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.end.as_ref().map(AsFd::as_fd)
    }
}

fn not_the_init() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "invalid record from the init")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;
    use crate::supervise::io::pipe::pipe_from_sandbox;

    fn record(kind: u32, step: u32, value: i32, at_ns: u64) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&step.to_ne_bytes());
        bytes[8..12].copy_from_slice(&value.to_ne_bytes());
        bytes[16..24].copy_from_slice(&at_ns.to_ne_bytes());
        bytes
    }

    #[test]
    fn only_records_decode_to_messages() {
        let table = [
            (record(wire::READY, 0, 0, 7), Some(Message::Ready { at_ns: 7 })),
            (
                record(wire::FAILED, 3, libc::EPERM, 0),
                Some(Message::Failed { step: 3, errno: libc::EPERM }),
            ),
            (
                record(wire::ENDED, 0, 3 << 8, 9),
                Some(Message::Ended { status: ProgramStatus::Exited(3), at_ns: 9 }),
            ),
            (
                record(wire::ENDED, 0, 9, 9),
                Some(Message::Ended { status: ProgramStatus::Signaled(9), at_ns: 9 }),
            ),
            (
                record(wire::ENDED, 0, 0x8b, 9),
                Some(Message::Ended { status: ProgramStatus::Signaled(11), at_ns: 9 }),
            ),
            (record(0, 0, 0, 0), None),
            (record(wire::PREPARED, 0, 0, 0), Some(Message::Prepared)),
            (record(5, 0, 0, 0), None),
            ([0xff; RECORD_BYTES], None),
        ];
        for (bytes, message) in table {
            assert_eq!(decode(&bytes), message, "{bytes:?}");
        }
    }

    /// The messages of a pipe into which a writer put `written` before it closed the pipe.
    fn messages_of(written: &[u8]) -> io::Result<Vec<Message>> {
        let (ours, theirs) = pipe_from_sandbox()?;
        File::from(theirs).write_all(written)?;
        let mut pipe = StatusPipe::new(ours);
        let mut messages = Vec::new();
        while let Some(message) = pipe.next()? {
            messages.push(message);
        }
        assert!(pipe.pipe().is_none(), "a pipe without writers would wake the loop forever");
        Ok(messages)
    }

    #[test]
    fn bytes_that_no_init_writes_are_an_error() {
        let ready = record(wire::READY, 0, 0, 7);
        assert_eq!(messages_of(&[]).unwrap(), []);
        assert_eq!(messages_of(&ready).unwrap(), [Message::Ready { at_ns: 7 }]);
        assert_eq!(messages_of(&ready.repeat(RECORDS_MAX)).unwrap().len(), RECORDS_MAX);
        let table = [
            ("half a record", ready[..12].to_vec()),
            ("a record and a half", ready.repeat(2)[..36].to_vec()),
            ("an unknown word", record(5, 0, 0, 0).to_vec()),
            ("more records than an init writes", ready.repeat(RECORDS_MAX + 1)),
            ("a flood", ready.repeat(1_000)),
        ];
        for (name, written) in table {
            let error = messages_of(&written).expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{name}");
        }
    }
}
