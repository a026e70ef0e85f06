//! The command line: arguments in, an exit code out.

mod attended;
mod boxes;
mod doctor;
mod exec;
mod failure;
mod figures;
mod guest;
mod input_file;
mod job;
mod langs;
mod log_format;
mod passthrough;
mod report;
mod run;
mod schema;
mod serve;
mod served_jobs;
mod signals;
mod virtual_machines;
mod writable_binds;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::sandbox::settle_in;
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
        Ok(CommandLine { command }) => command.run(),
        Err(error) if error.use_stderr() => Err(Failure::Usage(one_line(&error.to_string()))),
        Err(help) => print(&help.to_string()).map(|()| 0),
    };
    ExitCode::from(done.unwrap_or_else(|failure| {
        complain(&failure);
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

impl Command {
    fn run(self) -> Result<u8, Failure> {
        // First: it takes a process of one thread.
        settle_in();
        log_format::begin(if matches!(self, Self::Serve(_)) { "info" } else { "error" });
        match self {
            Self::Serve(serve) => serve.run(),
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

/// One line on stderr for every problem. Nobody is left to tell when that fails.
fn complain(failure: &Failure) {
    let mut stderr = io::stderr().lock();
    for line in failure.to_string().lines() {
        let _ = writeln!(stderr, "cofferdam: {line}");
    }
}

/// What is wrong with the arguments, without the usage that follows it.
fn one_line(rendered: &str) -> String {
    let fault = rendered.lines().map(str::trim).take_while(|line| !line.is_empty());
    let fault = fault.collect::<Vec<_>>().join(" ");
    format!("{}; see --help", fault.strip_prefix("error: ").unwrap_or(&fault))
}
