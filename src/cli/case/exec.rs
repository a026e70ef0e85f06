//! `cofferdam case exec`: runs one command in a Cell.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::{Args, ValueEnum};
use nix::unistd::geteuid;
use serde::Serialize;

use super::runs::lines_of;
use super::trials::{CaseHost, CaseHostRequest};
use crate::case::cell::{
    CellExecutorKind, ExecCode, ExecError, ExecRequest, ExecResult, TIMEOUT_DEFAULT,
};
use crate::case::file::{CheckedCase, load_case};
use crate::case::run::{CellFault, case_file};
use crate::case::trial::TrialStop;
use crate::cli::failure::{BY_SIGNAL, Failure, OTHER_LIMIT, SANDBOX, TIME_LIMIT, USAGE};
use crate::cli::foreground::Foreground;
use crate::cli::options::value_parsers;
use crate::cli::stdio::{print, say};
use cofferdam_core::job::{StreamRecord, TextEncoding};
use cofferdam_core::sync::cancel::CancelToken;

/// The start of the name of the directory, below that of temporary files, in which Cells have their files.
const STORE: &str = "cofferdam-cases";
/// The code of a trial without a backend.
const UNAVAILABLE: &str = "backend.unavailable";
const EXIT_CODES: &str = "\
Exit codes:
  the program's own; 128+n if signal n killed it; 124 the time limit; 123 killed for another limit;
  125 nothing has run; 126 not executable; 127 not found; 2 usage";

/// Runs one command over the files of a Cell, which are gone afterwards. Its stdin is empty.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct CaseExecCommand {
    /// The case file, or a directory with case.yaml
    #[arg(value_name = "CASE")]
    case: PathBuf,
    /// The working directory, relative to the sandbox
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Set a variable; the caller's environment is not passed on
    #[arg(long, value_name = "K=V", value_parser = value_parsers::variable)]
    env: Vec<(String, String)>,
    /// The time limit [default: 15m]
    #[arg(long, value_name = "D", value_parser = value_parsers::duration)]
    timeout: Option<Duration>,
    /// Join the words with spaces to a command of `sh -c`
    #[arg(long)]
    shell: bool,
    /// What runs the command [default: container if the Case has one, else sandboxed]
    #[arg(long, value_name = "E")]
    executor: Option<ExecutorName>,
    /// Print the result as JSON instead of the output
    #[arg(long)]
    json: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "ARGV")]
    argv: Vec<String>,
}

/// What `--json` prints where nothing has run.
#[derive(Debug, Serialize)]
struct ExecErrorAnswer<'a> {
    error: &'a NotRun,
}

/// Why the command has not run: an error of the executor, or of a step before it.
#[derive(Debug, Serialize)]
struct NotRun {
    code: String,
    message: String,
    details: BTreeMap<&'static str, String>,
}

/// An executor, as the command line names it.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ExecutorName {
    Sandboxed,
    Local,
    Container,
}

impl ExecutorName {
    fn kind(self) -> CellExecutorKind {
        match self {
            Self::Sandboxed => CellExecutorKind::Sandboxed,
            Self::Local => CellExecutorKind::Local,
            Self::Container => CellExecutorKind::Container,
        }
    }
}

impl CaseExecCommand {
    /// Runs the command; returns the exit code of the contract.
    pub fn run(self) -> Result<u8, Failure> {
        let checked = load_case(&self.case).map_err(|faults| Failure::Usage(lines_of(&faults)))?;
        let asked = self.executor.map(ExecutorName::kind);
        let request = ExecRequest {
            cwd: self.cwd,
            env: self
                .env
                .into_iter()
                .map(|(name, value)| (name, Some(value)))
                .collect::<BTreeMap<_, _>>(),
            timeout: self.timeout.unwrap_or(TIMEOUT_DEFAULT),
            shell: self.shell,
            ..ExecRequest::new(self.argv)
        };
        let foreground = Foreground::begin()?;
        let cancel = foreground.watch().cancel;
        let kind = CellExecutorKind::of(&checked.case, asked);
        let ended = run_in_cell(&self.case, &checked, kind, request, &cancel)?;
        let code = match &ended {
            Ok(result) => code_of(result),
            Err(_) => SANDBOX,
        };
        match (&ended, self.json) {
            (Ok(result), true) => print_json(result)?,
            (Ok(result), false) => pass_on(result)?,
            (Err(error), true) => print_json(&ExecErrorAnswer { error })?,
            (Err(error), false) => error.say(),
        }
        Ok(foreground.signal_code().unwrap_or(code))
    }
}

/// Runs the command in a Cell that is set up, and removes the Cell.
fn run_in_cell(
    path: &Path,
    checked: &CheckedCase,
    executor: CellExecutorKind,
    request: ExecRequest,
    cancel: &CancelToken,
) -> Result<Result<ExecResult, NotRun>, Failure> {
    let unavailable = |reason: &dyn std::fmt::Display| NotRun::of_executor(executor, reason);
    let case_path = match case_file(path).canonicalize() {
        Ok(path) => path,
        Err(error) => return Ok(Err(unavailable(&error))),
    };
    let store_dir = env::temp_dir().join(format!("{STORE}-{}", geteuid()));
    let host = CaseHost::open(&CaseHostRequest {
        checked,
        case_path: &case_path,
        executor,
        keep: false,
        workers: 1,
        store_dir: &store_dir,
    });
    match host {
        Ok(host) => Ok(run_on(&host, request, cancel)),
        // What the caller has set is wrong, whatever the host can do.
        Err(failure) if failure.code() == USAGE => Err(failure),
        Err(failure) => Ok(Err(unavailable(&failure))),
    }
}

fn run_on(
    host: &CaseHost,
    request: ExecRequest,
    cancel: &CancelToken,
) -> Result<ExecResult, NotRun> {
    let (cell, mut env) = host.host().set_up_cell(cancel).map_err(NotRun::of_trial)?;
    env.extend(request.env.clone());
    let ended = cell.as_executor().run(&ExecRequest { env, ..request });
    cell.as_executor().stop();
    ended.map_err(NotRun::from)
}

impl NotRun {
    /// The executor cannot be had here.
    fn of_executor(kind: CellExecutorKind, reason: &dyn std::fmt::Display) -> Self {
        let words = format!("{}: {reason}", kind.word());
        ExecError::new(ExecCode::BackendUnavailable, words).into()
    }

    /// The Cell could not be set up.
    fn of_trial(stop: TrialStop) -> Self {
        let plain = |code: &str, message: String| Self {
            code: code.to_owned(),
            message,
            details: BTreeMap::new(),
        };
        match stop {
            TrialStop::Cancelled => plain("exec.backend_failed", "cancelled".to_owned()),
            TrialStop::Skipped(reason) => plain("source.failed", reason),
            TrialStop::Failed(CellFault { code, step, message, tail })
            | TrialStop::Ungraded(CellFault { code, step, message, tail }) => {
                let code = if code == UNAVAILABLE {
                    format!("exec.{}", code.replace('.', "_"))
                } else {
                    code
                };
                let tail = tail.into_iter().map(|tail| ("tail", tail));
                Self { code, message, details: [("step", step)].into_iter().chain(tail).collect() }
            }
        }
    }

    fn say(&self) {
        say(&format!("cofferdam: {}", self.message));
        if let Some(tail) = self.details.get("tail") {
            say(tail);
        }
    }
}

impl From<ExecError> for NotRun {
    fn from(error: ExecError) -> Self {
        let code = serde_json::to_value(error.code).ok();
        let code = code.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
        Self { code, message: error.message, details: error.details }
    }
}

/// The exit code as for `cofferdam exec`.
fn code_of(result: &ExecResult) -> u8 {
    let by_signal = |signal: i32| u8::try_from(signal).map_or(SANDBOX, |number| BY_SIGNAL + number);
    match (result.outcome, result.exit_code, result.signal) {
        ("exited", Some(code), _) => code,
        ("signaled", _, Some(signal)) => by_signal(signal),
        ("timed_out" | "cpu_limit", ..) => TIME_LIMIT,
        ("cancelled", ..) => SANDBOX,
        _ => OTHER_LIMIT,
    }
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::Write { what: "the result", source: error.into() })?;
    print(&format!("{text}\n"))
}

/// Writes what the command wrote to our own streams, and what is missing of it to stderr.
fn pass_on(result: &ExecResult) -> Result<(), Failure> {
    write_stream(&mut io::stdout().lock(), &result.stdout, "stdout")?;
    write_stream(&mut io::stderr().lock(), &result.stderr, "stderr")?;
    for (name, stream) in [("stdout", &result.stdout), ("stderr", &result.stderr)] {
        if stream.truncated {
            say(&format!("cofferdam: {name}: of {} bytes, only the first are kept", stream.bytes));
        }
    }
    if let Some(limit) = result.limit {
        say(&format!("cofferdam: {}: {limit}", result.outcome));
    }
    Ok(())
}

fn write_stream(
    stream: &mut impl Write,
    record: &StreamRecord,
    what: &'static str,
) -> Result<(), Failure> {
    let bytes = match record.encoding {
        TextEncoding::Utf8 => record.text.clone().into_bytes(),
        TextEncoding::Base64 => BASE64_STANDARD.decode(&record.text).unwrap_or_default(),
    };
    match stream.write_all(&bytes).and_then(|()| stream.flush()) {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Write { what, source })
        }
        _ => Ok(()),
    }
}
