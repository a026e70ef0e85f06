//! The command line: arguments in, an exit code out.

mod attended;
mod boxes;
mod doctor;
mod exec;
mod failure;
mod figures;
mod file_size_limit;
mod guest;
mod input_file;
mod job;
mod langs;
mod memory;
mod passthrough;
mod report;
mod run;
mod schema;
mod serve;
mod served_jobs;
mod signals;
mod virtual_machines;
mod writable_binds;

use crate::telemetry::log_format;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

use cofferdam_sandbox::{bound_heaps, enter_user_namespace, survive_file_size_limit};
use failure::Failure;

const EXAMPLES: &str = "\
Examples:
  cofferdam exec -- sh -c 'id; ls /'
  cofferdam run --lang python solution.py
  cofferdam langs
  cofferdam doctor
  cofferdam serve --addr 127.0.0.1:4040
  cofferdam job run request.json

`cofferdam COMMAND --help` has more of each.";

/// Runs hostile code in a box of its own and says what became of it.
#[derive(Debug, Parser)]
#[command(name = "cofferdam", version, after_help = EXAMPLES)]
#[command(disable_help_subcommand = true, arg_required_else_help = false)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve POST /run over HTTP
    Serve(serve::Serve),
    /// Run a solution as POST /run does, without a server
    Run(run::Run),
    /// Run any command in the sandbox
    Exec(Box<exec::Exec>),
    /// List the languages and what is missing for each
    Langs(langs::Langs),
    /// Say what this host can enforce, and how to mend the rest
    Doctor(doctor::Doctor),
    /// Run agents' jobs, and tell of those that were run
    Job(job::Job),
    /// Print the JSON Schema of a job's request or result
    Schema(schema::Schema),
    /// Serve one run to the host of this machine
    #[command(hide = true)]
    GuestInit(guest::GuestInit),
}

/// Does what `arguments` (the program's own name first) ask for.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = or_serve(guest::as_called(arguments.into_iter()));
    let done = match CommandLine::try_parse_from(arguments) {
        Ok(CommandLine { command: Command::Serve(serve) }) => return serve_in_queue(serve),
        Ok(CommandLine { command }) => command.run(),
        Err(error) if error.use_stderr() => {
            Err(Failure::Usage(one_line(&without_hidden(error).to_string())))
        }
        Err(help) => print(&help.to_string()).map(|()| 0),
    };
    ExitCode::from(done.unwrap_or_else(|failure| {
        complain(&failure, &mut io::stderr().lock());
        failure.code()
    }))
}

/// An image's entry point gives no command, and has nobody at a terminal: it serves.
fn or_serve(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.len() <= 1 && !io::stdin().is_terminal() {
        arguments.resize_with(1, || "cofferdam".into());
        arguments.push("serve".into());
    }
    arguments
}

/// What every command needs of its process before anything else.
fn prepare_process() {
    // First: it takes a process of one thread.
    enter_user_namespace();
    survive_file_size_limit();
    // A limit that cannot be raised is reported by the command that writes too large a file.
    let _ = file_size_limit::raise_file_size();
}

/// Serves, with a log that keeps nothing waiting, and waits for the last lines of it for a second
/// at most.
fn serve_in_queue(serve: serve::Serve) -> ExitCode {
    prepare_process();
    bound_heaps();
    let mut log = match log_format::begin_queued("info") {
        Ok(log) => log,
        Err(error) => {
            let failure = Failure::Serve(error);
            complain(&failure, &mut io::stderr().lock());
            return ExitCode::from(failure.code());
        }
    };
    let code = serve.run(log.dropped()).unwrap_or_else(|failure| {
        complain(&failure, &mut log);
        failure.code()
    });
    log.flush();
    ExitCode::from(code)
}

impl Command {
    fn run(self) -> Result<u8, Failure> {
        prepare_process();
        log_format::begin("error");
        match self {
            // Its log is another, in `serve_in_queue`.
            Self::Serve(serve) => serve.run(Arc::default()),
            Self::Run(run) => run.run(),
            Self::Exec(exec) => exec.run(),
            Self::Langs(langs) => langs.run(),
            Self::Doctor(doctor) => doctor.run(),
            Self::Job(job) => job.run(),
            Self::Schema(schema) => schema.run(),
            Self::GuestInit(guest) => guest.run(),
        }
    }
}

/// Writes `text` to stdout. A reader that has gone has read enough.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Write { what: "stdout", source: error })
        }
        _ => Ok(()),
    }
}

/// One line on `stderr` for every problem. Nobody is left to tell when that fails.
fn complain(failure: &Failure, stderr: &mut impl Write) {
    for line in failure.to_string().lines() {
        let _ = stderr.write_all(format!("cofferdam: {line}\n").as_bytes());
    }
}

/// The error without the command that is not for people to run, which clap lists all the same.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::Strings(names)) = error.get(ContextKind::ValidSubcommand) {
        let shown = names.iter().filter(|name| *name != guest::COMMAND).cloned().collect();
        error.insert(ContextKind::ValidSubcommand, ContextValue::Strings(shown));
    }
    error
}

/// What is wrong with the arguments, without the usage that follows it.
fn one_line(rendered: &str) -> String {
    let fault = rendered.lines().map(str::trim).take_while(|line| !line.is_empty());
    let fault = fault.collect::<Vec<_>>().join(" ");
    format!("{}; see --help", fault.strip_prefix("error: ").unwrap_or(&fault))
}
