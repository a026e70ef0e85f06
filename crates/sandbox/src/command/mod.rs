//! The API of this crate: a sandbox, the command to run in it, and the running child.

mod child;

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::{
    Bind, Limits, NotStarted, Outcome, RunReport, RunSpec, SetupFailure, StdinSource, Tmpfs,
};

pub use self::child::{Child, ChildOutput};
use crate::host::root_source::RootSource;
use crate::launch::sandbox_host::{SandboxConfig, SandboxHost};
use crate::plan::PATH_DEFAULT;
use crate::plan::builtin_profile::builtin_profile;

/// What a program finds in its environment unless the command says otherwise.
const ENVIRONMENT: [(&str, &str); 4] =
    [("HOME", "/tmp/home"), ("LANG", "C.UTF-8"), ("PATH", PATH_DEFAULT), ("TMPDIR", "/tmp")];

/// Runs commands in sandboxes on this host. Each command gets a new sandbox of its own, which is
/// gone when the command's output or [`Child`] is.
///
/// Opening one examines the host, removes what crashed processes left behind, and tries a whole
/// sandbox. Open it once and share it: it is cheap to clone.
#[derive(Debug, Clone)]
pub struct Sandbox {
    host: Arc<SandboxHost>,
}

impl Sandbox {
    /// A sandbox with the host's root file system, read-only, and the profile `default`.
    ///
    /// # Errors
    /// [`SetupFailure`] names the step that the host refused. Without root, call
    /// [`enter_user_namespace`](crate::enter_user_namespace) first.
    pub fn new() -> Result<Self, SetupFailure> {
        let profile = builtin_profile("default")
            .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
        let config =
            SandboxConfig { profile, root: RootSource::Host, private: Vec::new(), strict: false };
        Ok(Self { host: Arc::new(SandboxHost::open(config)?) })
    }

    /// A command that runs `program` in a new sandbox, looked up in the sandbox's `PATH` unless it
    /// holds a slash.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        Command {
            host: Arc::clone(&self.host),
            argv: vec![program.as_ref().to_owned()],
            env: ENVIRONMENT.map(|(key, value)| (key.into(), value.into())).into(),
            workdir: "/workspace".into(),
            stdin: StdinSource::Null,
            limits: Limits::default(),
            binds: Vec::new(),
            tmpfs: Vec::new(),
        }
    }

    /// The controls that this host cannot enforce, each with its reason. Empty on a host that
    /// enforces all.
    pub fn not_enforced(&self) -> &[String] {
        self.host.not_enforced()
    }
}

/// A program, its arguments and its limits, as [`std::process::Command`] has them.
///
/// The program starts in `/workspace`, an empty directory of the sandbox, as uid 10001, without
/// network. Everything it writes is gone with the sandbox. The limits are those of
/// [`Limits::default`] until they are set.
#[derive(Debug)]
#[must_use = "a command does nothing until it is run"]
pub struct Command {
    host: Arc<SandboxHost>,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    workdir: PathBuf,
    stdin: StdinSource,
    limits: Limits,
    binds: Vec<Bind>,
    tmpfs: Vec<Tmpfs>,
}

impl Command {
    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.argv.push(arg.as_ref().to_owned());
        self
    }

    /// Adds several arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.argv.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the environment. The environment of this process is never inherited.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let key = key.as_ref();
        self.env.retain(|(known, _)| known != key);
        self.env.push((key.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Removes every variable, including those that each sandbox has by default.
    pub fn env_clear(mut self) -> Self {
        self.env.clear();
        self
    }

    /// Sets the working directory: an absolute path inside the sandbox.
    pub fn current_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.workdir = dir.as_ref().to_owned();
        self
    }

    /// Gives the program these bytes as its standard input, then end of file. Without it,
    /// standard input is empty.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = StdinSource::Bytes(bytes.into());
        self
    }

    /// Limits the wall-clock time, counted from the program's exec, and the CPU time of each
    /// process with it.
    pub fn timeout(mut self, wall: Duration) -> Self {
        self.limits = self.limits.with_wall(wall);
        self
    }

    /// Limits the CPU time of all processes of the sandbox together.
    pub fn cpu_time(mut self, total: Duration) -> Self {
        self.limits.cpu_total_max = Some(total);
        self
    }

    /// Limits the memory of the whole sandbox, its files included, in bytes.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.limits.memory_bytes_max = bytes;
        self
    }

    /// Limits the number of processes and threads.
    pub fn processes(mut self, count: u64) -> Self {
        self.limits.processes_max = count;
        self
    }

    /// Limits all that the program writes to files, in bytes.
    pub fn disk(mut self, bytes: u64) -> Self {
        self.limits.disk_bytes_max = bytes;
        self
    }

    /// Limits standard output and standard error, each in bytes. A program that writes more is
    /// killed.
    pub fn output_limit(mut self, bytes: u64) -> Self {
        self.limits.output_bytes_max = Some(bytes);
        self
    }

    /// Sets all limits at once.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Shows the host's file or directory `source` at the absolute path `target`, read-only.
    pub fn bind(self, source: impl AsRef<Path>, target: impl AsRef<Path>) -> Self {
        self.bound(source.as_ref(), target.as_ref(), true)
    }

    /// Shows the host's file or directory `source` at the absolute path `target`. What the
    /// program writes there stays on the host.
    pub fn bind_writable(self, source: impl AsRef<Path>, target: impl AsRef<Path>) -> Self {
        self.bound(source.as_ref(), target.as_ref(), false)
    }

    fn bound(mut self, source: &Path, target: &Path, read_only: bool) -> Self {
        self.binds.push(Bind { source: source.into(), target: target.into(), read_only });
        self
    }

    /// Adds an empty writable directory at the absolute path `target`, of at most `bytes`.
    pub fn tmpfs(mut self, target: impl AsRef<Path>, bytes: u64) -> Self {
        self.tmpfs.push(Tmpfs { target: target.as_ref().into(), bytes_max: Some(bytes) });
        self
    }

    /// Runs the command to its end and returns what it wrote.
    ///
    /// # Errors
    /// [`NotStarted`] if the sandbox could not be created or the program could not be executed.
    /// What the program does is never an error: see [`Output::outcome`].
    pub fn output(self) -> Result<Output, NotStarted> {
        child::run(self, None).map(Output::from)
    }

    /// Starts the command on a thread of its own. [`Child::wait`] returns what it wrote.
    ///
    /// # Errors
    /// [`SetupFailure`] if the thread or its descriptors cannot be created. A later failure is an
    /// error of [`Child::wait`].
    pub fn spawn(self) -> Result<Child, SetupFailure> {
        Child::spawn(self, false)
    }

    /// As [`Command::spawn`], and the caller reads the output as it comes, from
    /// [`Child::stdout`] and [`Child::stderr`]. The [`Output`] then holds none of it.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn spawn_piped(self) -> Result<Child, SetupFailure> {
        Child::spawn(self, true)
    }

    /// The host to run on, and the command as a run.
    fn into_spec(self) -> Result<(Arc<SandboxHost>, RunSpec), SetupFailure> {
        let word = |what: &'static str, word: &OsStr| {
            CString::new(word.as_bytes())
                .map_err(|_| SetupFailure::from_words(what, "holds a NUL byte"))
        };
        let argv = self.argv.iter().map(|arg| word("argument", arg)).collect::<Result<_, _>>()?;
        let variable = |(key, value): &(OsString, OsString)| {
            let mut text = key.clone();
            text.push("=");
            text.push(value);
            word("environment", &text)
        };
        let env = self.env.iter().map(variable).collect::<Result<_, _>>()?;
        let spec = RunSpec {
            argv,
            env,
            workdir: self.workdir,
            stdin: self.stdin,
            limits: self.limits,
            binds: self.binds,
            tmpfs: self.tmpfs,
            ..RunSpec::default()
        };
        Ok((self.host, spec))
    }
}

/// What a command wrote and how it ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Output {
    /// How it ended: exit code, signal, or the limit that ended it.
    pub outcome: Outcome,
    /// What it wrote to standard output, up to the limit.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error, up to the limit.
    pub stderr: Vec<u8>,
    /// What it used, which controls held it, and where the time went. Its captured streams are
    /// empty: they are `stdout` and `stderr` here.
    pub report: RunReport,
}

impl From<RunReport> for Output {
    fn from(mut report: RunReport) -> Self {
        let stdout = std::mem::take(&mut report.stdout.bytes);
        let stderr = std::mem::take(&mut report.stderr.bytes);
        Self { outcome: report.outcome, stdout, stderr, report }
    }
}
