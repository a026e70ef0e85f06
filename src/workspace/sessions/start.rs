//! Starts the program of a session.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use uuid::Uuid;

use super::session::{ProgramHandles, Session, SessionEnd};
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::request::LimitsRequest;
use crate::workspace::run::{PreparedRun, ProgramReport, RunRequest, no_sandbox, spawn_failed};
use cofferdam_core::job::TextEncoding;
use cofferdam_core::sync::input_queue::{INPUT_BYTES_MAX, InputQueue};
use cofferdam_core::sync::run_control::{RunControl, TerminalSize};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{NotStarted, StdinSource, Watch};

/// How long a program may take to start.
const START_WAIT: Duration = Duration::from_secs(30);
/// The terminal of a session that names no size.
const TERMINAL: TerminalSize = TerminalSize { columns: 80, rows: 24 };

/// The body of `POST W/sessions`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    cmd: String,
    args: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    cwd: Option<String>,
    stdin: Option<String>,
    encoding: Option<TextEncoding>,
    skill: Option<String>,
    timeout_ms: Option<u64>,
    limits: Option<LimitsRequest>,
    /// Whether the program gets a terminal.
    tty: Option<bool>,
    /// The width of the terminal, characters.
    cols: Option<u16>,
    /// The height of the terminal, lines.
    rows: Option<u16>,
}

impl StartRequest {
    /// Starts `program`, with a terminal of `cols` and `rows` if `tty`.
    pub fn of(program: RunRequest, tty: bool, cols: Option<u16>, rows: Option<u16>) -> Self {
        let RunRequest { cmd, args, env, cwd, stdin, encoding, skill, timeout_ms, limits } =
            program;
        let tty = Some(tty);
        Self { cmd, args, env, cwd, stdin, encoding, skill, timeout_ms, limits, tty, cols, rows }
    }

    /// The program, and the terminal that it gets.
    ///
    /// # Errors
    /// The terminal has no size.
    pub fn split(self) -> Result<(RunRequest, Option<TerminalSize>), EngineError> {
        let Self { cmd, args, env, cwd, stdin, encoding, skill, timeout_ms, limits, .. } = self;
        for (path, value) in [("cols", self.cols), ("rows", self.rows)] {
            if value == Some(0) {
                return Err(EngineError::invalid(path, "want a number from 1 to 65535"));
            }
        }
        let size = TerminalSize {
            columns: self.cols.unwrap_or(TERMINAL.columns),
            rows: self.rows.unwrap_or(TERMINAL.rows),
        };
        let program =
            RunRequest { cmd, args, env, cwd, stdin, encoding, skill, timeout_ms, limits };
        Ok((program, self.tty.unwrap_or_default().then_some(size)))
    }
}

/// Starts `prepared` on a thread of its own, where `watch` watches it. Returns when the program runs.
///
/// # Errors
/// It does not start.
pub fn start(
    mut prepared: PreparedRun,
    watch: Watch,
    terminal: Option<TerminalSize>,
) -> Result<Arc<Session>, EngineError> {
    let failed =
        |error: io::Error| EngineError::new(EngineCode::SandboxFailed, format!("session: {error}"));
    let control = watch.control.clone();
    let control = control.map_or_else(RunControl::new, Ok).map_err(failed)?;
    let cancel = watch.cancel.clone();
    let watch = Watch { control: Some(control.clone()), ..watch };
    let first = match std::mem::take(&mut prepared.spec.stdin) {
        StdinSource::Bytes(bytes) => bytes,
        _ => Vec::new(),
    };
    let input = InputQueue::with_bytes_max(INPUT_BYTES_MAX.max(first.len())).map_err(failed)?;
    // An open and empty queue has room for all of it.
    let _ = input.write(&first);
    let input = Arc::new(input);
    prepared.spec.stdin = StdinSource::Queue(Arc::clone(&input));
    prepared.spec.terminal = terminal;
    let handles = ProgramHandles { cancel: cancel.clone(), control: control.clone(), input };
    let id = format!("s_{}", Uuid::new_v4().simple());
    let session = Arc::new(Session::new(id, handles, terminal));
    let (running, cmd) = (Arc::clone(&session), prepared.cmd().to_owned());
    let supervise = move || {
        // The thread lives as long as the sandbox, which dies with it.
        match prepared.execute(&watch, Some(running.sink())) {
            Ok(report) => running.finish(end(report)),
            Err(error) => running.finish(end(ProgramReport::failed(error))),
        }
    };
    Builder::new().name("session".to_owned()).spawn(supervise).map_err(failed)?;
    match control.wait_started(Deadline::after(START_WAIT)) {
        Some(Ok(())) => Ok(session),
        Some(Err(NotStarted::Exec { errno })) => Err(spawn_failed(&cmd, errno)),
        Some(Err(NotStarted::Setup(failure))) => Err(no_sandbox(&failure)),
        None => {
            cancel.cancel();
            Err(EngineError::new(EngineCode::SandboxFailed, "the program did not start in time"))
        }
    }
}

fn end(report: ProgramReport) -> SessionEnd {
    SessionEnd {
        exit_code: report.exit_code(),
        signal: report.signal(),
        timed_out: report.timed_out(),
        exited_at: SystemTime::now(),
        result: Arc::new(report),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_80_columns_and_24_lines_unless_it_is_asked_for_otherwise() {
        let request = |tty, cols, rows| StartRequest { tty, cols, rows, ..Default::default() };
        assert_eq!(request(None, Some(7), None).split().unwrap().1, None);
        assert_eq!(request(Some(true), None, None).split().unwrap().1, Some(TERMINAL));
        let size = TerminalSize { columns: 7, rows: 24 };
        assert_eq!(request(Some(true), Some(7), None).split().unwrap().1, Some(size));
        let error = request(None, None, Some(0)).split().unwrap_err();
        assert_eq!(error.details["path"], "rows");
    }
}
