//! A program that goes on while its client does other things.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::sync::watch;

use super::byte_window::OutputChunk;
use super::line_window::LinePage;
use super::log::{SessionLog, Window};
use super::signal::{SignalTarget, target_of};
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::run::report::ProgramReport;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::input_queue::{InputError, InputQueue};
use cofferdam_core::sync::run_control::{ControlError, RunControl, TerminalSize};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::utc::rfc3339;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{OutputSink, Stream};

/// Viewers of one session at once.
pub const VIEWERS_MAX: usize = 16;
/// What ends the input of a terminal.
const END_OF_TEXT: &[u8] = b"\x04";

/// What controls a running program.
#[derive(Debug, Clone)]
pub struct ProgramHandles {
    /// Ends it at once.
    pub cancel: CancelToken,
    /// Gives it orders.
    pub control: RunControl,
    /// Its standard input.
    pub input: Arc<InputQueue>,
}

/// A program of a workspace, running or ended, with its output.
pub struct Session {
    id: String,
    handles: ProgramHandles,
    is_tty: bool,
    started_at: SystemTime,
    state: Mutex<SessionFields>,
    /// Wakes tasks that wait for output or the end.
    progress: watch::Sender<u64>,
    /// Wakes threads that wait for them.
    progressed: Condvar,
}

#[derive(Debug, Default)]
struct SessionFields {
    log: SessionLog,
    size: Option<TerminalSize>,
    viewers: usize,
    end: Option<SessionEnd>,
}

/// How a session ended.
#[derive(Debug, Clone)]
pub struct SessionEnd {
    /// The exit code, or -1.
    pub exit_code: i32,
    /// The signal that ended the program.
    pub signal: Option<i32>,
    /// Whether it ran for as long as it may.
    pub timed_out: bool,
    /// When it ended.
    pub exited_at: SystemTime,
    /// The whole result.
    pub result: Arc<ProgramReport>,
}

/// A session as clients see it.
#[derive(Debug, Clone, Serialize)]
pub struct SessionState {
    /// Its id.
    pub session_id: String,
    /// `running` or `exited`.
    pub status: &'static str,
    /// Null while it runs.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it has a terminal.
    pub tty: bool,
    /// The width of the terminal.
    pub cols: Option<u16>,
    /// The height of the terminal.
    pub rows: Option<u16>,
    /// Whether input can be written.
    pub stdin_open: bool,
    /// Attached viewers.
    pub viewers: usize,
    /// How much output there is.
    #[serde(flatten)]
    pub window: Window,
    /// When it was started.
    pub started_at: String,
    /// When it ended.
    pub exited_at: Option<String>,
}

/// Lines of a session, as a poll or a read of the log shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPage {
    /// `running` or `exited`.
    pub status: &'static str,
    /// Null while it runs.
    pub exit_code: Option<i32>,
    /// The lines.
    pub lines: LinePage,
}

impl Session {
    /// A session whose program is about to run.
    pub fn new(id: String, handles: ProgramHandles, terminal: Option<TerminalSize>) -> Self {
        let fields = SessionFields { size: terminal, ..SessionFields::default() };
        Self {
            id,
            handles,
            is_tty: terminal.is_some(),
            started_at: SystemTime::now(),
            state: Mutex::new(fields),
            progress: watch::Sender::new(0),
            progressed: Condvar::new(),
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Takes the output of its program.
    pub fn sink(self: &Arc<Self>) -> Box<dyn OutputSink> {
        Box::new(SessionSink(Arc::clone(self)))
    }

    /// What controls its program.
    pub fn control(&self) -> &RunControl {
        &self.handles.control
    }

    /// Records the end of the program. Output of what it left may follow.
    pub fn finish(&self, end: SessionEnd) {
        let mut state = self.lock();
        state.log.finish();
        state.end.get_or_insert(end);
        self.tell(state);
    }

    /// What clients see of it.
    pub fn state(&self) -> SessionState {
        let state = self.lock();
        let end = state.end.as_ref();
        SessionState {
            session_id: self.id.clone(),
            status: status(end),
            exit_code: end.map(|end| end.exit_code),
            signal: end.and_then(|end| end.signal),
            tty: self.is_tty,
            cols: state.size.map(|size| size.columns),
            rows: state.size.map(|size| size.rows),
            stdin_open: end.is_none() && self.handles.input.is_open(),
            viewers: state.viewers,
            window: state.log.window(),
            started_at: rfc3339(self.started_at),
            exited_at: end.map(|end| rfc3339(end.exited_at)),
        }
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<SessionEnd> {
        self.lock().end.clone()
    }

    /// How much output there is.
    pub fn window(&self) -> Window {
        self.lock().log.window()
    }

    /// Output from byte `offset` on; see [`SessionLog::bytes_from`].
    pub fn bytes_from(&self, offset: u64, bytes_max: usize) -> Option<OutputChunk> {
        self.lock().log.bytes_from(offset, bytes_max)
    }

    /// Whether a poll would show anything new.
    pub fn has_news(&self) -> bool {
        self.lock().has_news()
    }

    /// Waits on this thread until a poll would show anything new. Returns false if the deadline passes
    /// first.
    pub fn wait_news(&self, deadline: Deadline) -> bool {
        self.wait_until(deadline, SessionFields::has_news)
    }

    /// Waits on this thread until everything of the program is dead. Returns false if the deadline passes
    /// first.
    pub fn wait_end(&self, deadline: Deadline) -> bool {
        self.wait_until(deadline, |state| state.end.is_some())
    }

    fn wait_until(&self, deadline: Deadline, is_so: impl Fn(&SessionFields) -> bool) -> bool {
        let waits = |state: &mut SessionFields| !is_so(state);
        let waited = self.progressed.wait_timeout_while(self.lock(), deadline.remaining(), waits);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Changes with every output and at the end.
    pub fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// The lines after the last poll, at most `limit`.
    pub fn poll(&self, limit: Option<usize>) -> SessionPage {
        let mut state = self.lock();
        let lines = state.log.poll(limit);
        let end = state.end.as_ref();
        SessionPage { status: status(end), exit_code: end.map(|end| end.exit_code), lines }
    }

    /// The lines from number `offset` on.
    pub fn read(&self, offset: u64, limit: Option<usize>) -> LinePage {
        self.lock().log.read(offset, limit)
    }

    /// Writes all of `bytes` to the program's input, or nothing.
    ///
    /// # Errors
    /// The program has ended, or takes no more input now or ever.
    pub fn write(&self, bytes: &[u8]) -> Result<(), EngineError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.check_running()?;
        self.handles.input.write(bytes).map_err(|error| match error {
            InputError::Full { unread_bytes } => {
                let code = EngineCode::SessionInputFull;
                EngineError::new(code, error.to_string()).with("unread_bytes", unread_bytes)
            }
            InputError::Closed | InputError::Gone => {
                EngineError::new(EngineCode::SessionStdinClosed, error.to_string())
            }
        })
    }

    /// Ends the program's input. On a terminal, types what ends it.
    ///
    /// # Errors
    /// The program has ended, or a terminal takes no more input now.
    pub fn close_stdin(&self) -> Result<SessionState, EngineError> {
        self.check_running()?;
        if self.is_tty {
            self.write(END_OF_TEXT)?;
        } else {
            self.handles.input.close();
        }
        Ok(self.state())
    }

    /// Sets the size of the terminal.
    ///
    /// # Errors
    /// The session has no terminal, the size is invalid, or the program has ended.
    pub fn resize(&self, columns: u16, rows: u16) -> Result<SessionState, EngineError> {
        for (path, value) in [("cols", columns), ("rows", rows)] {
            if value == 0 {
                return Err(EngineError::invalid(path, "want a number from 1 to 65535"));
            }
        }
        if !self.is_tty {
            return Err(EngineError::new(EngineCode::SessionNoTty, "the session has no terminal"));
        }
        self.check_running()?;
        let size = TerminalSize { columns, rows };
        self.handles.control.resize(size).map_err(refused)?;
        self.lock().size = Some(size);
        Ok(self.state())
    }

    /// Sends the signal called `name`, `INT` or `SIGINT`.
    ///
    /// # Errors
    /// There is no such signal, or the program has ended.
    pub fn signal(&self, name: &str) -> Result<SessionState, EngineError> {
        let target = target_of(name, self.is_tty)?;
        self.check_running()?;
        let control = &self.handles.control;
        let sent = match target {
            SignalTarget::Main(signal) => control.signal(signal),
            SignalTarget::Foreground(signal) => control.signal_foreground(signal),
        };
        sent.map_err(refused)?;
        Ok(self.state())
    }

    /// Asks the program to end, and kills everything of it after `grace`. Returns without waiting.
    pub fn terminate(&self, grace: Duration) {
        match self.handles.control.terminate(grace) {
            Ok(()) | Err(ControlError::Ended) => {}
            // Too busy for an order: the token needs no answer.
            Err(_) => self.handles.cancel.cancel(),
        }
    }

    /// Kills everything of the program at once. Returns without waiting.
    pub fn cancel(&self) {
        self.handles.cancel.cancel();
    }

    /// The result of the ended program.
    ///
    /// # Errors
    /// It runs.
    pub fn result(&self) -> Result<Arc<ProgramReport>, EngineError> {
        let running = || EngineError::new(EngineCode::SessionRunning, "the program has not ended");
        self.end().map(|end| end.result).ok_or_else(running)
    }

    /// Adds a viewer.
    ///
    /// # Errors
    /// There are as many as there may be.
    pub fn attach(self: &Arc<Self>) -> Result<Viewer, EngineError> {
        let mut state = self.lock();
        if state.viewers >= VIEWERS_MAX && !weakened::lacks(Wall::Viewers) {
            let words = format!("the session has {VIEWERS_MAX} viewers");
            return Err(EngineError::new(EngineCode::WorkspaceLimit, words));
        }
        state.viewers += 1;
        Ok(Viewer(Arc::clone(self)))
    }

    fn check_running(&self) -> Result<(), EngineError> {
        match self.lock().end {
            None => Ok(()),
            Some(_) => Err(not_running()),
        }
    }

    /// Wakes all who wait for a change of `state`.
    fn tell(&self, state: MutexGuard<'_, SessionFields>) {
        drop(state);
        self.progressed.notify_all();
        self.progress.send_modify(|version| *version = version.wrapping_add(1));
    }

    fn lock(&self) -> MutexGuard<'_, SessionFields> {
        // Each change leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionFields {
    fn has_news(&self) -> bool {
        self.end.is_some() || self.log.has_news()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A viewer of a session. Dropped when it leaves.
#[derive(Debug)]
pub struct Viewer(Arc<Session>);

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.viewers = state.viewers.saturating_sub(1);
    }
}

/// Writes a program's output into its session's log.
struct SessionSink(Arc<Session>);

impl OutputSink for SessionSink {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let mut state = self.0.lock();
        state.log.push(stream, bytes);
        self.0.tell(state);
    }

    fn takes_excess(&self) -> bool {
        true
    }

    fn after_program(self: Box<Self>) -> Option<Box<dyn OutputSink>> {
        Some(Box::new(LeftSink(Arc::downgrade(&self.0))))
    }
}

/// Writes what processes print that a program left into its session's log, while that is kept.
struct LeftSink(Weak<Session>);

impl OutputSink for LeftSink {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        if let Some(session) = self.0.upgrade() {
            let mut state = session.lock();
            state.log.push(stream, bytes);
            session.tell(state);
        }
    }
}

fn status(end: Option<&SessionEnd>) -> &'static str {
    if end.is_some() { "exited" } else { "running" }
}

fn not_running() -> EngineError {
    EngineError::new(EngineCode::SessionNotRunning, "the program has ended")
}

fn refused(error: ControlError) -> EngineError {
    match error {
        ControlError::Ended => not_running(),
        ControlError::NoTerminal => EngineError::new(EngineCode::SessionNoTty, error.to_string()),
        ControlError::Busy | ControlError::NotStarted | ControlError::TimedOut => {
            EngineError::new(EngineCode::EngineBusy, error.to_string())
        }
        ControlError::Unsupported | ControlError::Refused(_) => {
            EngineError::new(EngineCode::SandboxFailed, error.to_string())
        }
    }
}
