//! A program that has its permits, its directory and its sandbox, and is not started.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use super::report::ProgramReport;
use super::request::ProgramSettings;
use super::run_dir;
use super::shared::sandbox_of;
use crate::egress::EgressGrant;
use crate::executor::{Capabilities, MountSource, MountedView, put_home_files};
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::files::{engine_error, locate};
use crate::workspace::helpers::constants::ENV_SKILL_NAME;
use crate::workspace::request::{ProgramLimits, SandboxScope};
use crate::workspace::service::live::network::ProgramEgress;
use crate::workspace::service::live::{LiveProgram, LiveWorkspace, WorkspaceUse};
use crate::workspace::service::span::Span;
use crate::workspace::trees::{PlainProgram, SharedTree, TreeSandbox};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{
    ExcessOutput, Limits, NotStarted, OutputSink, Prestart, RunSpec, SetupFailure, StdinSource,
    Watch,
};
use cofferdam_sandbox::engine::PROGRAMS_STEP;
use cofferdam_sandbox::plan::PATH_DEFAULT;
use cofferdam_tree::files::{
    EntryType, FileArea, FileLocation, FilesError, WorkspaceRoot, make_directory, stat,
};

/// Open files of one process.
const OPEN_FILES_MAX: u64 = 4096;
/// Stands for no limit of CPU seconds, which the kernel counts in 32 bits on some hosts.
const CPU_SECONDS_UNLIMITED: u64 = u32::MAX as u64;
/// Bytes that a sandbox may have outside of the workspace, in `/run`, `/dev/shm` and `/var/tmp`.
const OWN_BYTES_MAX: u64 = 64 << 20;
/// What programs lack whose workspace shares its host uid.
const SHARED_ID: &str =
    "host uid: this workspace shares it with its forks, since the kernel is older than Linux 6.3";
/// The step of a sandbox that enters the working directory.
const WORKDIR_STEP: &str = "workdir";
/// Where Python finds packages of a user, some of which it loads at its start, below `/tmp`.
const HOME_PACKAGES: &str = "home/.local";

/// What a program needs besides its request.
#[derive(Debug)]
pub struct RunTerms<'a> {
    /// The workspace.
    pub live: Arc<LiveWorkspace>,
    /// The request's use of the workspace, if the program is one.
    pub used: Option<WorkspaceUse>,
    /// What reaches the program.
    pub program: LiveProgram,
    /// What is held until everything that the program started is dead, besides its place among the
    /// programs of the workspace.
    pub retained: Retained,
    /// Variables of every program.
    pub base_env: &'a BTreeMap<String, String>,
    /// What the host enforces.
    pub controls: Capabilities,
}

/// A program that is ready to start.
#[derive(Debug)]
pub struct PreparedRun {
    /// The program.
    pub spec: RunSpec,
    sandbox: Box<dyn TreeSandbox>,
    retained: Retained,
    live: Arc<LiveWorkspace>,
    _used: Option<WorkspaceUse>,
    run_dir: Option<FileLocation>,
    cmd: String,
    controls: Capabilities,
    /// What this workspace lacks.
    not_own: Option<String>,
    egress: ProgramEgress,
}

impl PreparedRun {
    /// Makes the directories of the program, and its sandbox.
    ///
    /// # Errors
    /// A variable is one of the network's, the working directory cannot be made, or a step of making the sandbox failed.
    pub fn new(settings: ProgramSettings, terms: RunTerms<'_>) -> Result<Self, EngineError> {
        let RunTerms { live, used, program, retained, base_env, controls } = terms;
        live.network.check_env(&settings.env)?;
        let cwd = settings.cwd.as_deref().unwrap_or(".");
        let tree = live.doors().share();
        let program = live.begin_program(&tree, program)?;
        let root = live.root(&tree);
        let cwd = locate(&root, "cwd", cwd)?;
        ensure_directory(&root, &cwd)?;
        let run_dir = run_dir::make(&root, SystemTime::now(), || live.next_run());
        let cmd = settings.argv.first().cloned().unwrap_or_default();
        let place = SandboxPlace { live: &live, tree: &tree, run_dir: run_dir.as_ref() };
        let made = place.make(settings, &cwd, base_env);
        let (spec, sandbox, egress) = made.inspect_err(|_| {
            run_dir.iter().for_each(|location| run_dir::remove_if_empty(&root, location));
        })?;
        let not_own = tree.shares_host_id().then(|| SHARED_ID.to_owned());
        drop(tree);
        let mut controls = controls;
        controls.not_enforced.extend(not_own.clone());
        let retained = retained.and(Arc::new(program));
        Ok(Self {
            spec,
            sandbox,
            retained,
            live,
            _used: used,
            run_dir,
            cmd,
            controls,
            not_own,
            egress,
        })
    }

    /// Where the program sees the directory of its run.
    pub fn run_dir(&self) -> Option<String> {
        self.run_dir.as_ref().map(|location| inside(&self.live, location))
    }

    /// Executes the program ahead of a request that is expected in `live`, if it is a kernel of a
    /// workspace without variables and ways out of its own.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn expect(
        settings: ProgramSettings,
        live: &Arc<LiveWorkspace>,
        base_env: &BTreeMap<String, String>,
    ) -> Result<(), EngineError> {
        if live.settings.sandbox != SandboxScope::Program || live.settings.network.is_some() {
            return Ok(());
        }
        let tree = live.doors().share();
        let cwd = locate(&live.root(&tree), "cwd", ".")?;
        let spec = spec(settings, live, &cwd, None, base_env)?;
        let source = Arc::downgrade(live) as Weak<dyn MountSource>;
        tree.expect(PlainProgram { spec: &spec, source });
        Ok(())
    }

    /// The program, as its request names it.
    pub fn cmd(&self) -> &str {
        &self.cmd
    }

    /// Runs the program to its end on this thread.
    ///
    /// # Errors
    /// There is no sandbox for it.
    pub fn execute(
        self,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<ProgramReport, EngineError> {
        let Self { spec, sandbox, retained, live, run_dir, cmd, .. } = self;
        let Self { _used, controls, not_own, egress, .. } = self;
        let span = Span::begin("workspace.run");
        let cwd = spec.workdir.display().to_string();
        let ended = sandbox.run(spec, retained, watch, sink);
        if let Some(location) = &run_dir {
            live.with_root(|root| run_dir::remove_if_empty(root, location));
        }
        let run_dir = run_dir.as_ref().map(shown);
        let report = match ended {
            Ok(mut report) => {
                report.not_enforced.extend(not_own);
                ProgramReport { egress: egress.records(), ..ProgramReport::of(report, run_dir) }
            }
            Err(NotStarted::Exec { errno }) => {
                let Capabilities { enforced, not_enforced } = controls;
                ProgramReport::not_started(&cmd, errno, enforced, not_enforced)
            }
            Err(NotStarted::Setup(failure)) => return Err(no_sandbox(&failure)),
        };
        span.end_run(&live.id, &cmd, &cwd, (report.exit_code(), report.timed_out()));
        Ok(report)
    }
}

/// Where the sandbox of a program is made.
#[derive(Clone, Copy)]
struct SandboxPlace<'a> {
    live: &'a Arc<LiveWorkspace>,
    tree: &'a SharedTree<'a>,
    run_dir: Option<&'a FileLocation>,
}

impl SandboxPlace<'_> {
    /// Makes the program and its sandbox, its own or that of the workspace, which may reach what the
    /// workspace may.
    fn make(
        self,
        settings: ProgramSettings,
        cwd: &FileLocation,
        base_env: &BTreeMap<String, String>,
    ) -> Result<(RunSpec, Box<dyn TreeSandbox>, ProgramEgress), EngineError> {
        let Self { live, tree, run_dir } = self;
        let is_interactive = settings.is_interactive;
        let spec = |egress: &ProgramEgress| {
            let mut base_env = base_env.clone();
            base_env.extend(egress.environment());
            spec(settings, live, cwd, run_dir, &base_env)
        };
        let put_files = |egress: &ProgramEgress| {
            if let Some(grant) = egress.grant() {
                put_home_files(tree.root(), tree.owner(), grant.service().as_ref());
            }
        };
        let sandbox = |plain: Option<PlainProgram<'_>>| {
            let all = sandbox_limits(live.settings.limits, Duration::ZERO);
            sandbox_of(live, tree, (OWN_BYTES_MAX, plain), all, run_dir.map(shown))
        };
        match live.settings.sandbox {
            SandboxScope::Workspace => {
                let sandbox = sandbox(None)?;
                let egress = ProgramEgress::of(live.network.shared());
                put_files(&egress);
                Ok((spec(&egress)?, sandbox, egress))
            }
            SandboxScope::Program => {
                let egress = ProgramEgress::of(live.network.grant(run_dir.map(shown))?);
                put_files(&egress);
                let mut spec = spec(&egress)?;
                spec.egress = egress.grant().map(EgressGrant::service);
                let source = || Arc::downgrade(live) as Weak<dyn MountSource>;
                let is_plain = |spec: &RunSpec| !is_interactive || spec.prestart.is_some();
                let plain = is_plain(&spec).then(|| PlainProgram { spec: &spec, source: source() });
                let sandbox = sandbox(plain)?;
                Ok((spec, sandbox, egress))
            }
        }
    }
}

fn shown(location: &FileLocation) -> String {
    location.shown().display().to_string()
}

impl MountSource for LiveWorkspace {
    fn view(&self) -> Result<Option<MountedView>, SetupFailure> {
        let Some(tree) = self.doors().try_share().filter(|_| !self.is_over()) else {
            return Ok(None);
        };
        let view = tree.view(self.settings.path.clone(), OWN_BYTES_MAX);
        view.map(Some).map_err(|error| SetupFailure::from_words("mounts", error.to_string()))
    }

    fn is_untouched(&self) -> bool {
        let Some(tree) = self.doors().try_share() else { return false };
        let packages = FileLocation::top(FileArea::Tmp).join(Path::new(HOME_PACKAGES));
        matches!(stat(&self.root(&tree), &packages), Err(FilesError::NotFound { .. }))
    }
}

fn inside(live: &LiveWorkspace, location: &FileLocation) -> String {
    live.rule().path_inside(location).display().to_string()
}

/// Makes the directory, unless it is there.
fn ensure_directory(root: &WorkspaceRoot<'_>, location: &FileLocation) -> Result<(), EngineError> {
    let there = match make_directory(root, location, 0) {
        Ok(()) => return Ok(()),
        Err(FilesError::Exists { .. }) => stat(root, location).map_err(engine_error)?,
        Err(error) => return Err(engine_error(error)),
    };
    match there.entry_type {
        // The sandbox follows a link as far as the program could.
        EntryType::Directory | EntryType::Link => Ok(()),
        EntryType::File | EntryType::Other => {
            let path = location.shown().display().to_string();
            let words = format!("cwd: {path} is no directory");
            Err(EngineError::new(EngineCode::FileNotRegular, words).with("path", path))
        }
    }
}

fn spec(
    settings: ProgramSettings,
    live: &LiveWorkspace,
    cwd: &FileLocation,
    run_dir: Option<&FileLocation>,
    base_env: &BTreeMap<String, String>,
) -> Result<RunSpec, EngineError> {
    let ProgramSettings { argv, skill, env, stdin, timeout, limits, kernel, .. } = settings;
    let workdir = live.rule().path_inside(cwd);
    let mut all: BTreeMap<String, String> =
        [("HOME", "/tmp/home"), ("LANG", "C.UTF-8"), ("PATH", PATH_DEFAULT), ("TMPDIR", "/tmp")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
    all.insert("PWD".to_owned(), workdir.display().to_string());
    all.extend(base_env.clone());
    let top = live.settings.path.as_path();
    for (name, below) in [
        ("WORKSPACE_DIR", ""),
        ("SKILLS_DIR", "skills"),
        ("WORK_DIR", "work"),
        ("OUTPUT_DIR", "out"),
    ] {
        let path = if below.is_empty() { top.to_owned() } else { top.join(below) };
        all.insert(name.to_owned(), path.display().to_string());
    }
    // A kernel gets it with its first line: it may have been executed before its run.
    if let Some(run_dir) = run_dir.filter(|_| kernel.is_none()) {
        all.insert("RUN_DIR".to_owned(), inside(live, run_dir));
    }
    all.extend(skill.map(|skill| (ENV_SKILL_NAME.to_owned(), skill)));
    // A variable of a client can name files that the interpreter loads before it is ready.
    let ahead = kernel.filter(|_| live.settings.env.is_empty() && env.is_empty());
    all.extend(live.settings.env.clone());
    all.extend(env);
    let env = all.into_iter().map(|(name, value)| format!("{name}={value}"));
    let ProgramLimits { stdout_bytes, stderr_bytes, .. } = limits;
    let argv = c_strings("args", argv)?;
    let prestart = ahead.map(|language| Prestart {
        argv: argv.clone(),
        label: format!("kernel:{}", language.short_name()),
    });
    Ok(RunSpec {
        argv,
        prestart,
        env: c_strings("env", env)?,
        workdir,
        stdin: if stdin.is_empty() { StdinSource::Null } else { StdinSource::Bytes(stdin) },
        limits: sandbox_limits(limits, timeout),
        excess_output: ExcessOutput::Dropped {
            stdout_bytes_max: stdout_bytes,
            stderr_bytes_max: stderr_bytes,
        },
        ..RunSpec::default()
    })
}

/// The limits of the sandbox. Those of the disk are the workspace's own.
fn sandbox_limits(limits: ProgramLimits, timeout: Duration) -> Limits {
    let cpu_time = (limits.cpu_time_ms > 0).then(|| Duration::from_millis(limits.cpu_time_ms));
    Limits {
        wall: timeout,
        cpu_seconds_max: cpu_time.map_or(CPU_SECONDS_UNLIMITED, |time| time.as_secs() + 1),
        cpu_total_max: cpu_time,
        memory_bytes_max: limits.memory_mb.saturating_mul(1 << 20),
        processes_max: limits.max_pids,
        cpus_milli_max: (limits.cpu_percent > 0).then(|| limits.cpu_percent.saturating_mul(10)),
        file_bytes_max: u64::MAX,
        open_files_max: OPEN_FILES_MAX,
        output_bytes_max: None,
        ..Limits::default()
    }
}

/// The texts as the kernel takes them. They have been checked.
fn c_strings(
    path: &str,
    texts: impl IntoIterator<Item = String>,
) -> Result<Vec<CString>, EngineError> {
    let converted = texts.into_iter().map(CString::new).collect::<Result<_, _>>();
    converted.map_err(|_| EngineError::invalid(path, "holds a NUL"))
}

/// The error of a program whose sandbox could not be made.
pub fn no_sandbox(failure: &SetupFailure) -> EngineError {
    if failure.step == PROGRAMS_STEP {
        return EngineError::new(EngineCode::WorkspaceLimit, failure.reason.as_str())
            .with("limit", "programs");
    }
    if failure.step.starts_with(WORKDIR_STEP) {
        let words = format!("cwd: {}", failure.reason);
        return EngineError::new(EngineCode::FileNotRegular, words).with("path", "cwd");
    }
    EngineError::new(EngineCode::SandboxFailed, failure.to_string())
        .with("step", failure.step.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RequestRanges;

    #[test]
    fn limits_are_those_of_the_request_and_cpu_is_unlimited_without_any() {
        let none = ProgramLimits {
            memory_mb: 64,
            max_pids: 7,
            ..ProgramLimits::default_of(&RequestRanges::default())
        };
        let limits = sandbox_limits(none, Duration::from_secs(5));
        assert_eq!((limits.wall, limits.memory_bytes_max), (Duration::from_secs(5), 64 << 20));
        assert_eq!((limits.processes_max, limits.open_files_max), (7, 4096));
        assert_eq!((limits.cpu_total_max, limits.cpus_milli_max), (None, None));
        assert_eq!(limits.cpu_seconds_max, CPU_SECONDS_UNLIMITED);
        let some = ProgramLimits { cpu_percent: 50, cpu_time_ms: 1500, ..none };
        let limits = sandbox_limits(some, Duration::from_secs(5));
        assert_eq!(limits.cpu_total_max, Some(Duration::from_millis(1500)));
        assert_eq!((limits.cpu_seconds_max, limits.cpus_milli_max), (2, Some(500)));
    }
}
