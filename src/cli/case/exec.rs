//! `cofferdam case exec`: runs one command in a Cell.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::case::cell::{
    CellExecutor, CellExecutorKind, CellSettings, ContainerCell, ContainerHost, ContainerSettings,
    ExecCode, ExecError, ExecRequest, ExecResult, LocalCell, LocalSettings, SandboxedCell,
    TIMEOUT_DEFAULT,
};
use crate::case::file::{Case, CaseFaults, load_case};
use crate::cli::failure::{BY_SIGNAL, Failure, OTHER_LIMIT, SANDBOX, TIME_LIMIT};
use crate::cli::foreground::Foreground;
use crate::cli::options::sandbox_options::{PROFILE, ROOTFS_VARIABLE, root_source};
use crate::cli::options::value_parsers;
use crate::cli::stdio::{print, say};
use crate::executor::SandboxExecutor;
use cofferdam_core::SetupFailure;
use cofferdam_core::job::{StreamRecord, TextEncoding};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_sandbox::engine::{SandboxConfig, SandboxHost, builtin_profile};

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
    error: &'a ExecError,
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
        let ended = CellSettings::of(&checked.case, asked)
            .and_then(|(settings, kind)| open(&checked.case, settings, kind, cancel))
            .and_then(|cell| {
                cell.start()?;
                let ended = cell.run(&request);
                cell.stop();
                ended
            });
        let code = match &ended {
            Ok(result) => code_of(result),
            Err(_) => SANDBOX,
        };
        match (&ended, self.json) {
            (Ok(result), true) => print_json(result)?,
            (Ok(result), false) => pass_on(result)?,
            (Err(error), true) => print_json(&ExecErrorAnswer { error })?,
            (Err(error), false) => say(&format!("cofferdam: {error}")),
        }
        Ok(foreground.signal_code().unwrap_or(code))
    }
}

fn open(
    case: &Case,
    settings: CellSettings,
    kind: CellExecutorKind,
    cancel: CancelToken,
) -> Result<Box<dyn CellExecutor>, ExecError> {
    match kind {
        CellExecutorKind::Local => {
            let helper = own_program(kind)?;
            let settings = LocalSettings { cell: settings, base: env::temp_dir(), helper };
            Ok(Box::new(LocalCell::new(settings, cancel)))
        }
        CellExecutorKind::Sandboxed => {
            let executor = sandbox_executor().map_err(|failure| unavailable(kind, &failure))?;
            Ok(Box::new(SandboxedCell::new(Arc::new(executor), settings, cancel)))
        }
        CellExecutorKind::Container => {
            let container = case.container.clone();
            let container = container.ok_or_else(|| unavailable(kind, &"the Case has none"))?;
            let passed = container.env_passthrough.iter();
            let host = ContainerHost {
                base: env::temp_dir(),
                helper: own_program(kind)?,
                search_path: env::var_os("PATH").unwrap_or_default(),
                variables: passed
                    .filter_map(|name| Some((name.clone(), env::var(name).ok()?)))
                    .collect(),
            };
            let settings =
                ContainerSettings { cell: settings, container, setup_egress: None, host };
            Ok(Box::new(ContainerCell::new(settings, cancel)))
        }
    }
}

/// This program, which runs the commands of a Cell.
fn own_program(kind: CellExecutorKind) -> Result<PathBuf, ExecError> {
    env::current_exe().map_err(|error| unavailable(kind, &error))
}

fn sandbox_executor() -> Result<SandboxExecutor, SetupFailure> {
    let rootfs = env::var_os(ROOTFS_VARIABLE).map(PathBuf::from);
    let root = root_source(rootfs.as_deref())
        .map_err(|words| SetupFailure::from_words("rootfs", words))?;
    let profile = builtin_profile(PROFILE)
        .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
    let config = SandboxConfig { profile, root, private: Vec::new(), strict: false };
    Ok(SandboxExecutor::new(SandboxHost::open(config)?))
}

fn unavailable(kind: CellExecutorKind, reason: &dyn std::fmt::Display) -> ExecError {
    ExecError::new(ExecCode::BackendUnavailable, format!("{}: {reason}", kind.word()))
}

fn lines_of(faults: &CaseFaults) -> String {
    let line = |path: &str, message: &str| match path {
        "" => message.to_owned(),
        path => format!("{path}: {message}"),
    };
    let lines = faults.errors.iter().map(|error| line(&error.path, &error.message));
    lines.collect::<Vec<_>>().join("\n")
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
