//! `cofferdam exec`: runs any command in the sandbox.

mod limit_options;
mod network_options;
mod overlay;
mod writable_binds;

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{self, Path, PathBuf};

use clap::Args;
use nix::fcntl::OFlag;

use crate::check::languages::environment;
use crate::cli::failure::{Failure, error_words};
use crate::cli::foreground::Foreground;
use crate::cli::foreground::report::RunReportJson;
use crate::cli::options::sandbox_options::{PROFILE, ROOTFS_VARIABLE, root_source};
use crate::cli::options::value_parsers;
use crate::egress::EgressGrant;
use crate::executor::{Executor, RunInput, SandboxExecutor, WorkspaceInput};
use cofferdam_core::{
    Bind, Limits, NotStarted, Outcome, OutputSink, RunReport, RunSpec, SetupFailure, StdinSource,
    Tmpfs,
};
use cofferdam_sandbox::engine::builtin_profile;
use cofferdam_sandbox::engine::{RootSource, SandboxConfig, SandboxHost};
use cofferdam_seccomp::profile::Profile;
use limit_options::LimitOptions;
use network_options::NetworkOptions;
use overlay::OverlayTrial;
use overlay::options::OverlayOptions;
use writable_binds::WritableBinds;

/// The maximum number of binds: each needs descriptors while the sandbox is created.
const BINDS_MAX: usize = 64;

const EXAMPLES: &str = "\
Examples:
  cofferdam exec -- id
  cofferdam exec --timeout 5s --memory 256MiB -- python3 -c 'print(1)'
  cofferdam exec --bind ./data:/data:ro --bind ./out:/out --workdir /out -- make -f /data/Makefile
  cofferdam exec --report report.json --cpu-time 2s -- ./busy <input.txt
  cofferdam exec --overlay . -- make format
  cofferdam exec --overlay . --commit --protect '*.lock' -- ./upgrade.sh

Exit codes:
  the program's own; 128+n if signal n killed it; 124 a time limit; 123 killed for another limit;
  125 the sandbox failed, or a commit conflict; 126 not executable; 127 not found; 2 usage";

/// Runs a command in the same sandbox as POST /run, with an empty writable /workspace.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExecCommand {
    /// Bind a file or directory of the host into the sandbox, writable unless `:ro`
    #[arg(long, value_name = "SRC:DST[:ro]", value_parser = value_parsers::bind)]
    bind: Vec<Bind>,
    /// Mount an empty private file system in the sandbox
    #[arg(long, value_name = "DST[:SIZE]", value_parser = value_parsers::tmpfs)]
    tmpfs: Vec<Tmpfs>,
    /// The working directory in the sandbox [default: the first --overlay, or /workspace]
    #[arg(long, value_name = "DIR", value_parser = value_parsers::directory)]
    workdir: Option<PathBuf>,
    /// Set a variable; the caller's environment is not passed on
    #[arg(long, value_name = "K=V", value_parser = value_parsers::variable)]
    env: Vec<(String, String)>,
    /// The sandbox profile
    #[arg(long, value_name = "NAME", default_value = PROFILE)]
    profile: String,
    /// The root file system instead of the host's [SANDBOX_ROOTFS]
    #[arg(long, value_name = "DIR")]
    rootfs: Option<PathBuf>,
    /// Write the report of the run as JSON; empty if the run did not start
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
    // Last, because their headings apply to all options after them.
    #[command(flatten)]
    overlay: OverlayOptions,
    #[command(flatten)]
    network: NetworkOptions,
    #[command(flatten)]
    limits: LimitOptions,
}

impl ExecCommand {
    /// Runs the command; returns the exit code of the contract.
    pub fn run(mut self) -> Result<u8, Failure> {
        let profile = profile(&self.profile)?;
        let rootfs = self.rootfs.clone().or_else(|| env::var_os(ROOTFS_VARIABLE).map(Into::into));
        let root = root_source(rootfs.as_deref()).map_err(Failure::Usage)?;
        let program = self.command.first().cloned().unwrap_or_default();
        let report = self.report.clone();
        let shared = WritableBinds::of(&self.bind);
        let options = std::mem::take(&mut self.overlay);
        let mut trial = OverlayTrial::of(&options, &root, self.targets())?;
        let workdir = trial.as_ref().map_or(Path::new("/workspace"), OverlayTrial::workdir);
        let workdir = self.workdir.take().unwrap_or_else(|| workdir.to_owned());
        let variables: BTreeMap<String, String> =
            std::mem::take(&mut self.env).into_iter().collect();
        let egress = self.network.grant(&variables)?;
        let spec = RunSpec { workdir, ..self.spec(&shared, variables, egress.as_ref())? };
        // Opened before the run, so that no run is wasted, and after all other checks, so that a
        // usage error does not truncate an older report.
        let create = |option: &str, path: &Path| create_report(option, path, &shared);
        let report_file = report.as_deref().map(|path| create("--report", path)).transpose()?;
        if let Some(trial) = &mut trial {
            trial.create_files(&options, create)?;
        }
        let foreground = Foreground::begin()?;
        let (result, broken) = foreground.pass_through(|sink| {
            run_in_sandbox(profile, root, spec, &foreground, sink, trial.as_mut())
                .map_err(|why| Failure::not_started(program, why))
        })?;
        if let (Ok(report), Some(file)) = (&result, report_file) {
            let asked = egress.as_ref().map(EgressGrant::records);
            write_report(file, &RunReportJson::of(report).with_egress(asked))
                .map_err(|source| Failure::Write { what: "the report", source })?;
        }
        let outcome = result.as_ref().ok().map(|report| report.outcome);
        let code = foreground.exit_code(result.map(|report| report.outcome), broken)?;
        match (trial, outcome) {
            (Some(trial), Some(outcome)) if outcome != Outcome::Cancelled => {
                trial.finish(outcome, &foreground)?;
            }
            _ => {}
        }
        Ok(foreground.signal_code().unwrap_or(code))
    }

    /// Where the sandbox shows something else than its root.
    fn targets(&self) -> Vec<PathBuf> {
        let binds = self.bind.iter().map(|bind| bind.target.clone());
        binds.chain(self.tmpfs.iter().map(|tmpfs| tmpfs.target.clone())).collect()
    }

    /// What the command runs with: its own `variables`, and what `egress` lets it reach.
    fn spec(
        self,
        shared: &WritableBinds,
        variables: BTreeMap<String, String>,
        egress: Option<&EgressGrant>,
    ) -> Result<RunSpec, Failure> {
        if self.bind.len() > BINDS_MAX {
            return Err(Failure::option(
                "--bind",
                format!("{}; want at most {BINDS_MAX}", self.bind.len()),
            ));
        }
        let words = self.command.into_iter().map(|word| CString::new(word.into_vec()));
        let argv =
            words.collect::<Result<_, _>>().map_err(|error| Failure::option("CMD", error))?;
        let mut all = egress.map(EgressGrant::environment).unwrap_or_default();
        all.extend(variables);
        Ok(RunSpec {
            argv,
            env: environment(None, &all),
            egress: egress.map(EgressGrant::service),
            stdin: stdin().map_err(|error| SetupFailure::from_io("stdin", &error))?,
            limits: self.limits.over(Limits::default()),
            binds: self
                .bind
                .into_iter()
                .map(|bind| existing(bind, shared))
                .collect::<Result<_, _>>()?,
            tmpfs: self.tmpfs,
            ..RunSpec::default()
        })
    }
}

fn run_in_sandbox(
    profile: Profile,
    root: RootSource,
    spec: RunSpec,
    foreground: &Foreground,
    sink: Box<dyn OutputSink>,
    trial: Option<&mut OverlayTrial>,
) -> Result<RunReport, NotStarted> {
    let config = SandboxConfig { profile, root, private: Vec::new(), strict: false };
    let sandbox = SandboxHost::open_for_one(config, trial.is_none() && spec.egress.is_none())?;
    if let Some(trial) = trial {
        return trial.run(SandboxExecutor::new(sandbox), spec, foreground, sink);
    }
    let workspace = WorkspaceInput::Template { dir: None, files: &[] };
    let input = RunInput { spec, workspace, retained: Default::default() };
    SandboxExecutor::new(sandbox).execute(input, &foreground.watch(), Some(sink))
}

fn profile(name: &str) -> Result<Profile, Failure> {
    builtin_profile(name).map_err(|error| {
        let names: Vec<_> = Profile::builtin_names().collect();
        Failure::option("--profile", format!("{error}; want one of {}", names.join(", ")))
    })
}

/// Our own stdin as the stdin of the program.
fn stdin() -> io::Result<StdinSource> {
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let metadata = stdin.metadata()?;
    let nothing = fs::metadata("/dev/null")?.rdev();
    // A closed stdin is /dev/null too: the runtime opens it.
    if metadata.file_type().is_char_device() && metadata.rdev() == nothing {
        return Ok(StdinSource::Null);
    }
    Ok(StdinSource::Copied(stdin.into()))
}

/// `bind` with an absolute source, which must exist.
fn existing(bind: Bind, shared: &WritableBinds) -> Result<Bind, Failure> {
    let fault = |error: io::Error| {
        Failure::option("--bind", format!("{}: {}", bind.source.display(), error_words(&error)))
    };
    shared.open_within(&bind.source, OFlag::O_PATH).map_err(fault)?;
    let source = path::absolute(&bind.source).map_err(fault)?;
    fs::metadata(&source).map_err(fault)?;
    Ok(Bind { source, ..bind })
}

/// Creates the file that `option` names. In a directory that tenants can write to, follows no link and does not
/// block on a fifo.
fn create_report(option: &str, path: &Path, shared: &WritableBinds) -> Result<File, Failure> {
    let fault = |error: io::Error| {
        Failure::option(option, format!("{}: {}", path.display(), error_words(&error)))
    };
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NONBLOCK;
    let within = shared.open_within(path, flags).map_err(fault)?;
    let Some(file) = within.map(File::from) else {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
        return file.map_err(fault);
    };
    // Fails for a fifo of the tenant's, which cannot be truncated.
    file.set_len(0).map_err(fault)?;
    Ok(file)
}

fn write_report(mut file: File, report: &RunReportJson<'_>) -> io::Result<()> {
    let mut text = serde_json::to_vec(report)?;
    text.push(b'\n');
    file.write_all(&text)
}
