//! The command line: arguments in, an exit code out.

mod case;
mod check;
mod doctor;
mod engine;
mod evaluate;
mod failure;
mod firecracker;
mod foreground;
mod job;
mod options;
mod remote;
mod serve;
mod stdio;

use crate::case::cell::{serve_container, serve_keeper, serve_step};
use crate::telemetry::log_format;

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

use cofferdam_core::values::deadline::Deadline;
use cofferdam_sandbox::engine::{
    await_closed, bound_heaps, enter_user_namespace, survive_file_size_limit,
};
use failure::Failure;
use nix::sys::resource::{Resource, setrlimit};
use options::deferred::Deferred;
use stdio::print;

/// How long a thread that has run a program may take to end.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  cofferdam exec -- sh -c 'id; ls /'
  cofferdam run --lang python solution.py
  cofferdam langs
  cofferdam doctor
  cofferdam serve --addr 127.0.0.1:4040
  cofferdam job run request.json
  cofferdam workspace run $ID -- python3 work/main.py

`cofferdam COMMAND --help` describes each command.";

/// Runs hostile code in a sandbox and reports how it ended.
#[derive(Debug, Parser)]
#[command(name = "cofferdam", version, after_help = EXAMPLES)]
#[command(disable_help_subcommand = true, arg_required_else_help = false)]
struct CommandLine {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Serve POST /run over HTTP
    Serve(Deferred<serve::ServeCommand>),
    /// Run a solution as POST /run does, without a server
    Run(Deferred<check::run::RunCommand>),
    /// Run any command in the sandbox
    Exec(Box<Deferred<check::exec::ExecCommand>>),
    /// List the languages and what is missing for each
    Langs(Deferred<check::langs::LangsCommand>),
    /// Report what this host can enforce, and how to fix the rest
    Doctor(Deferred<doctor::DoctorCommand>),
    /// Run agents' jobs and query their records
    Job(Deferred<job::JobCommand>),
    /// Print the JSON Schema of a job's request or result
    Schema(Deferred<job::schema::SchemaCommand>),
    /// Use workspaces of a service, their files and programs
    Workspace(Deferred<engine::workspace::WorkspaceCommand>),
    /// Save and load artifacts on a service
    Artifact(Deferred<engine::artifact::ArtifactCommand>),
    /// Execute code blocks, without a server
    Execute(Deferred<engine::execute::ExecuteCommand>),
    /// Evaluate an agent or a patch on a task, without a server
    Evaluate(Box<Deferred<evaluate::EvaluateCommand>>),
    /// Call a helper of the engine with JSON from stdin
    Helper(Deferred<engine::helper::HelperCommand>),
    /// Check and convert the tasks of evaluations
    Task(Deferred<evaluate::task::TaskCommand>),
    /// Check Cases, and run commands in their Cells
    Case(Deferred<case::CaseCommand>),
    /// Run one command of a Cell on this host
    #[command(hide = true)]
    CellStep,
    /// Run the commands of a Cell in this container
    #[command(hide = true)]
    CellContainer,
    /// Remove what a Cell has once its supervisor is gone
    #[command(hide = true)]
    CellKeeper,
    /// Serve one run to the host of this virtual machine
    #[cfg(feature = "firecracker")]
    #[command(hide = true)]
    GuestInit(Deferred<firecracker::guest_init::GuestInitCommand>),
}

/// Runs the command that `arguments` (the program's name first) give; returns its exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = arguments.into_iter().collect();
    #[cfg(feature = "firecracker")]
    let arguments = firecracker::guest_init::as_called(arguments);
    let arguments = or_serve(arguments);
    let done = match CommandLine::try_parse_from(arguments) {
        Ok(CommandLine { command: CliCommand::Serve(Deferred(serve)) }) => {
            return serve_in_queue(serve);
        }
        // Without anything that the command would inherit.
        Ok(CommandLine { command: CliCommand::CellStep }) => return cell_process(serve_step),
        Ok(CommandLine { command: CliCommand::CellContainer }) => {
            return cell_process(serve_container);
        }
        Ok(CommandLine { command: CliCommand::CellKeeper }) => return cell_process(serve_keeper),
        Ok(CommandLine { command }) => {
            let done = command.run();
            close_sandboxes();
            done
        }
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

/// Adds the command `serve` if no command is given and stdin is not a terminal, as for the entry point of
/// an image.
fn or_serve(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.len() <= 1 && !io::stdin().is_terminal() {
        arguments.resize_with(1, || "cofferdam".into());
        arguments.push("serve".into());
    }
    arguments
}

/// Sets the process up, before the command does anything else.
fn prepare_process() {
    // First, because it needs a process with a single thread.
    enter_user_namespace();
    survive_file_size_limit();
    leave_no_core();
    // If this fails, the command that writes too large a file reports the limit.
    let _ = serve::file_size_limit::raise_file_size();
}

/// Keeps secrets out of core dumps. The limit does not hold for one that the kernel hands to a program, so
/// that a dump also has no memory in it.
fn leave_no_core() {
    // Lowering a limit is always allowed, and a kernel without core dumps has no filter for them.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let _ = fs::write("/proc/self/coredump_filter", "0");
}

/// Serves with a log that never blocks its callers. At the end, waits up to a second for the last
/// lines to be written.
fn serve_in_queue(serve: serve::ServeCommand) -> ExitCode {
    prepare_process();
    bound_heaps();
    let mut log = match log_format::init_queued("info") {
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
    close_sandboxes();
    log.flush();
    ExitCode::from(code)
}

/// Waits for threads that have run a program and are about to end: what sandboxes leave is cleared by the last one.
fn close_sandboxes() {
    if !await_closed(Deadline::after(CLOSE_WAIT)) {
        log::warn!("a sandbox is in use still; the next start clears what it leaves");
    }
}

/// Does for a Cell what the process on the other side of stdin says.
fn cell_process(serve: fn() -> io::Result<()>) -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(failure::SANDBOX),
    }
}

impl CliCommand {
    fn run(self) -> Result<u8, Failure> {
        prepare_process();
        log_format::init("error");
        match self {
            // Unreachable: `main` calls `serve_in_queue`, which sets up the queued log.
            Self::Serve(Deferred(serve)) => serve.run(Arc::default()),
            Self::Run(Deferred(run)) => run.run(),
            Self::Exec(exec) => exec.0.run(),
            Self::Langs(Deferred(langs)) => langs.run(),
            Self::Doctor(Deferred(doctor)) => doctor.run(),
            Self::Job(Deferred(job)) => job.run(),
            Self::Schema(Deferred(schema)) => schema.run(),
            Self::Workspace(Deferred(workspace)) => workspace.run(),
            Self::Artifact(Deferred(artifact)) => artifact.run(),
            Self::Execute(Deferred(execute)) => execute.run(),
            Self::Evaluate(evaluate) => evaluate.0.run(),
            Self::Helper(Deferred(helper)) => helper.run(),
            Self::Task(Deferred(task)) => task.run(),
            Self::Case(Deferred(case)) => case.run(),
            // Unreachable: `main` calls `cell_process`, before anything is prepared.
            Self::CellStep | Self::CellContainer | Self::CellKeeper => Ok(0),
            #[cfg(feature = "firecracker")]
            Self::GuestInit(Deferred(guest)) => guest.run(),
        }
    }
}

/// Writes one line to `stderr` for each problem. Ignores write errors: there is no other stream to
/// report them on.
fn complain(failure: &Failure, stderr: &mut impl Write) {
    for line in failure.to_string().lines() {
        let _ = stderr.write_all(format!("cofferdam: {line}\n").as_bytes());
    }
}

/// Removes hidden commands from the list of valid commands in `error`.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::Strings(names)) = error.get(ContextKind::ValidSubcommand) {
        let command = CommandLine::command();
        let is_shown = |name: &&String| {
            command.find_subcommand(name).is_none_or(|command| !command.is_hide_set())
        };
        let shown = names.iter().filter(is_shown).cloned().collect();
        error.insert(ContextKind::ValidSubcommand, ContextValue::Strings(shown));
    }
    error
}

/// The error message of clap in one line, without the usage text that follows it.
fn one_line(rendered: &str) -> String {
    let fault = rendered.lines().map(str::trim).take_while(|line| !line.is_empty());
    let fault = fault.collect::<Vec<_>>().join(" ");
    format!("{}; see --help", fault.strip_prefix("error: ").unwrap_or(&fault))
}
