//! Programs that are talked with.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::workspace::sessions::{LinePage, SessionPage, SessionState};
use crate::workspace::{EngineError, ProgramReport, encode};
use cofferdam_core::job::TextEncoding;

/// Output of a session from a line on. Lines are counted from 0, and keep their numbers when old lines are
/// dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramLog {
    /// The lines, joined by `\n`, with the unfinished line at the end if it was reached.
    pub output: String,
    /// How `output` is written: as text, or in base64 if it is not UTF-8.
    pub encoding: TextEncoding,
    /// The number of the first line.
    pub offset: u64,
    /// The number of the line after the last whole one.
    pub next_offset: u64,
    /// Whether `output` ends with an unfinished line, which comes again until its end arrives.
    pub partial: bool,
}

/// Output of a session since the last poll, and whether it goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramPoll {
    /// [`PROGRAM_STATUS_RUNNING`](super::PROGRAM_STATUS_RUNNING) or
    /// [`PROGRAM_STATUS_EXITED`](super::PROGRAM_STATUS_EXITED).
    pub status: &'static str,
    /// The exit code, or -1; none while the program runs.
    pub exit_code: Option<i32>,
    /// As in [`ProgramLog`].
    pub output: String,
    /// As in [`ProgramLog`].
    pub encoding: TextEncoding,
    /// As in [`ProgramLog`].
    pub offset: u64,
    /// As in [`ProgramLog`]: the next poll begins with this line.
    pub next_offset: u64,
    /// As in [`ProgramLog`].
    pub partial: bool,
}

impl From<LinePage> for ProgramLog {
    fn from(lines: LinePage) -> Self {
        let LinePage { offset, next_offset, text, partial } = lines;
        let (encoding, output) = encode(text);
        Self { output, encoding, offset, next_offset, partial }
    }
}

impl From<SessionPage> for ProgramPoll {
    fn from(page: SessionPage) -> Self {
        let SessionPage { status, exit_code, lines } = page;
        let ProgramLog { output, encoding, offset, next_offset, partial } = lines.into();
        Self { status, exit_code, output, encoding, offset, next_offset, partial }
    }
}

/// A program that was started. Several threads can use it at the same time.
pub trait ProgramSession: Debug + Send + Sync {
    /// Its id.
    fn id(&self) -> &str;

    /// The lines since the last poll, at most `limit` of them; all if it is absent or 0. Moves the cursor of
    /// polls to `next_offset`.
    fn poll(&self, limit: Option<usize>) -> ProgramPoll;

    /// The lines from number `offset` on, which is moved into what is kept; the first kept line if absent.
    /// `limit` is as in a poll. Leaves the cursor of polls where it is.
    fn log(&self, offset: Option<u64>, limit: Option<usize>) -> ProgramLog;

    /// Waits until a poll would show anything new, or the program has ended. Returns false if `wait` passes
    /// first.
    fn wait_output(&self, wait: Duration) -> bool;

    /// Writes to the standard input, all or nothing, with a newline at the end if `newline`.
    ///
    /// # Errors
    /// The program has ended, its input is closed, or it has 1 MiB of input that it has not read. Nothing to
    /// write is no error.
    fn write(&self, data: &[u8], newline: bool) -> Result<(), EngineError>;

    /// Asks the program to end with SIGTERM, and kills everything of it after `grace`. Returns when all is
    /// dead. An ended program is left as it is.
    ///
    /// # Errors
    /// A killed process has not died in time.
    fn kill(&self, grace: Duration) -> Result<(), EngineError>;

    /// Kills what runs, and forgets the session: its engine no longer counts it. What it has printed can
    /// still be read here.
    ///
    /// # Errors
    /// A killed process has not died in time.
    fn close(&self) -> Result<(), EngineError>;

    /// Itself, if it can tell its state.
    fn state_provider(&self) -> Option<&dyn ProgramStateProvider> {
        None
    }

    /// Itself, if it can tell its result.
    fn result_provider(&self) -> Option<&dyn ProgramResultProvider> {
        None
    }
}

/// Tells the state of a session without moving a cursor.
pub trait ProgramStateProvider: Debug + Send + Sync {
    /// The state.
    fn state(&self) -> SessionState;
}

/// Tells how an ended session ended.
pub trait ProgramResultProvider: Debug + Send + Sync {
    /// The result.
    ///
    /// # Errors
    /// The program runs.
    fn run_result(&self) -> Result<Arc<ProgramReport>, EngineError>;
}
