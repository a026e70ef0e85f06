//! A builder for a program to run in a sandbox.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use cofferdam::executor::{RunInput, SandboxExecutor, WorkspaceInput};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::sync::run_control::{RunControl, TerminalSize};
use cofferdam_core::values::rel_path::RelPath;
use cofferdam_core::{
    Bind, ExcessOutput, Limits, MountedWorkspace, NotStarted, OutputSink, RunReport, RunSpec,
    StdinSource, Tmpfs, Watch,
};
use cofferdam_sandbox::engine::HostId;

/// The default environment.
const ENV: [&str; 3] = ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp/home", "LANG=C.UTF-8"];

/// One program with its environment, limits and files.
#[derive(Debug)]
pub struct Program {
    argv: Vec<String>,
    env: Vec<String>,
    workdir: PathBuf,
    pub stdin: StdinSource,
    limits: Limits,
    template: Option<PathBuf>,
    files: Vec<(RelPath, Vec<u8>)>,
    binds: Vec<Bind>,
    tmpfs: Vec<Tmpfs>,
    client: Option<OwnedFd>,
    control: Option<RunControl>,
    excess_output: ExcessOutput,
    terminal: Option<TerminalSize>,
    cancel: CancelToken,
}

impl Program {
    /// A command by its arguments.
    pub fn new(argv: &[&str]) -> Self {
        Self {
            argv: argv.iter().map(|&arg| arg.to_owned()).collect(),
            env: ENV.map(str::to_owned).to_vec(),
            workdir: "/workspace".into(),
            stdin: StdinSource::Null,
            limits: Limits::default(),
            template: None,
            files: Vec::new(),
            binds: Vec::new(),
            tmpfs: Vec::new(),
            client: None,
            control: None,
            excess_output: ExcessOutput::Kills,
            terminal: None,
            cancel: CancelToken::new().unwrap(),
        }
    }

    /// A shell script.
    pub fn sh(script: &str) -> Self {
        Self::new(&["/bin/sh", "-c", script])
    }

    /// A Python program, isolated from packages that are installed on the host.
    pub fn python(source: &str) -> Self {
        Self::new(&["/usr/bin/python3", "-I", "-S", "-c", source])
    }

    /// The whole environment.
    pub fn env(mut self, env: &[&str]) -> Self {
        self.env = env.iter().map(|&entry| entry.to_owned()).collect();
        self
    }

    /// The working directory.
    pub fn workdir(mut self, workdir: &str) -> Self {
        self.workdir = workdir.into();
        self
    }

    /// Standard input.
    pub fn stdin(mut self, stdin: StdinSource) -> Self {
        self.stdin = stdin;
        self
    }

    /// Changes the limits.
    pub fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    /// The template of the workspace.
    pub fn template(mut self, template: &Path) -> Self {
        self.template = Some(template.to_owned());
        self
    }

    /// A file in the workspace.
    pub fn file(mut self, path: &str, contents: &[u8]) -> Self {
        self.files.push((RelPath::parse(path).unwrap(), contents.to_vec()));
        self
    }

    /// Adds a path of the host.
    pub fn bind(mut self, source: &Path, target: &str, read_only: bool) -> Self {
        self.binds.push(Bind { source: source.to_owned(), target: target.into(), read_only });
        self
    }

    /// An extra tmpfs.
    pub fn tmpfs(mut self, target: &str, bytes_max: Option<u64>) -> Self {
        self.tmpfs.push(Tmpfs { target: target.into(), bytes_max });
        self
    }

    /// The socket of a client whose disconnect ends the run.
    pub fn client(mut self, client: OwnedFd) -> Self {
        self.client = Some(client);
        self
    }

    /// What controls the run.
    pub fn control(mut self, control: &RunControl) -> Self {
        self.control = Some(control.clone());
        self
    }

    /// Keeps this much of each output stream, and drops the rest.
    pub fn dropping(mut self, stdout_bytes_max: u64, stderr_bytes_max: u64) -> Self {
        self.excess_output = ExcessOutput::Dropped { stdout_bytes_max, stderr_bytes_max };
        self
    }

    /// A controlling terminal.
    pub fn terminal(mut self, columns: u16, rows: u16) -> Self {
        self.terminal = Some(TerminalSize { columns, rows });
        self
    }

    /// The token that cancels the run.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    pub(crate) fn run_on(
        self,
        backend: &SandboxExecutor,
        host_id: &HostId,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let (mut program, watch) = self.watched();
        let (template, files) = (program.template.take(), std::mem::take(&mut program.files));
        let files: Vec<(&RelPath, &[u8])> =
            files.iter().map(|(path, contents)| (path, contents.as_slice())).collect();
        let workspace = WorkspaceInput::Template { dir: template.as_deref(), files: &files };
        let input = RunInput { spec: program.spec(), workspace, retained: Default::default() };
        backend.run_as(input, host_id, &watch, sink)
    }

    pub(crate) fn run_over(
        self,
        backend: &SandboxExecutor,
        host_id: &HostId,
        workspace: MountedWorkspace,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let (program, watch) = self.watched();
        let retained = Retained::default();
        backend.run_mounted(program.spec(), workspace, host_id, retained, &watch, sink)
    }

    fn watched(mut self) -> (Self, Watch) {
        let (client, control) = (self.client.take(), self.control.take());
        let watch = Watch { client, control, ..Watch::of(self.cancel.clone()) };
        (self, watch)
    }

    fn spec(self) -> RunSpec {
        let c_strings = |texts: Vec<String>| {
            texts.into_iter().map(|text| CString::new(text).unwrap()).collect::<Vec<_>>()
        };
        RunSpec {
            argv: c_strings(self.argv),
            env: c_strings(self.env),
            workdir: self.workdir,
            stdin: self.stdin,
            limits: self.limits,
            excess_output: self.excess_output,
            terminal: self.terminal,
            binds: self.binds,
            tmpfs: self.tmpfs,
            ..RunSpec::default()
        }
    }
}
