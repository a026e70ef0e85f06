//! What the init says, read from its status pipe.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use super::init::wire::{self, RECORD_BYTES};
use super::pump::PipeEnd;

/// One message of the init or of the program's process before exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Set-up is done; exec is next. Without it, a closed pipe would look like
    /// a program that started.
    Ready {
        /// `CLOCK_MONOTONIC`, nanoseconds.
        at_ns: u64,
    },
    /// Step `step` failed.
    Failed {
        /// Its index in the plan.
        step: u32,
        /// What the kernel said.
        errno: i32,
    },
    /// The program ended.
    Ended {
        /// How.
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

/// A message from its bytes; none for anything the init does not write.
pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Message> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (kind, step, value) = (word(0)?, word(4)?, word(8)?.cast_signed());
    let at_ns = u64::from_ne_bytes(bytes.get(16..24)?.try_into().ok()?);
    match kind {
        wire::READY => Some(Message::Ready { at_ns }),
        wire::FAILED => Some(Message::Failed { step, errno: value }),
        wire::ENDED => Some(Message::Ended { status: ProgramStatus::from_wait(value), at_ns }),
        _ => None,
    }
}

/// The supervisor's end of the status pipe.
#[derive(Debug)]
pub struct StatusPipe(PipeEnd);

impl StatusPipe {
    /// Reads from `end`, which must not block.
    pub fn new(end: PipeEnd) -> Self {
        Self(end)
    }

    /// The next message, if one has arrived. Records are written whole, so a
    /// short read can only be the end.
    pub fn next(&mut self) -> io::Result<Option<Message>> {
        let mut bytes = [0; RECORD_BYTES];
        match self.0.read(&mut bytes) {
            Ok(RECORD_BYTES) => Ok(decode(&bytes)),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for StatusPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, step: u32, value: i32, at_ns: u64) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&step.to_ne_bytes());
        bytes[8..12].copy_from_slice(&value.to_ne_bytes());
        bytes[16..24].copy_from_slice(&at_ns.to_ne_bytes());
        bytes
    }

    #[test]
    fn records_become_messages_and_nothing_else_does() {
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
            (record(4, 0, 0, 0), None),
            ([0xff; RECORD_BYTES], None),
        ];
        for (bytes, message) in table {
            assert_eq!(decode(&bytes), message, "{bytes:?}");
        }
    }
}
