//! The executor that is the default: a sandbox for each command, over files that last for the Cell.

use std::ffi::CString;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Gid, Uid, fchownat};

use super::capture::StepOutput;
use super::error::{ExecCode, ExecError};
use super::executor::{CellDescription, CellExecutor};
use super::files::CellFiles;
use super::layout::CellLayout;
use super::plan::{CellExecutorKind, CellSettings, StepLimits};
use super::request::{CellStep, ExecRequest};
use super::result::{ExecResult, StepControls, StepUsage};
use super::source::{SOURCE_LIMITS, copy_source};
use super::stage::CellStage;
use crate::executor::{AcquiredId, SandboxExecutor};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{
    ExcessOutput, Limits, MountedDirectory, MountedWorkspace, NotStarted, RunReport, RunSpec,
    SetupFailure, StdinSource, Watch, WorkspacePath,
};
use cofferdam_sandbox::engine::{DiskSpace, LayerHost, Storage, WorkspaceFs, WorkspaceMounts};
use cofferdam_tree::Owner;

/// The directory of the environment, below the root and in sandboxes.
const ENV: &str = "env";
/// Bytes and files that a sandbox may have in `/run`, `/dev/shm` and `/var/tmp`.
const OWN_BYTES_MAX: u64 = 64 << 20;
const OWN_INODES_MAX: u64 = 16_384;
/// Files that the commands of a Cell may make.
const INODES_MAX: u64 = 1_000_000;
/// The least disk that a file system can have, bytes.
const DISK_BYTES_MIN: u64 = 64 << 10;
/// Open files of one process.
const OPEN_FILES_MAX: u64 = 4096;
/// Stands for no limit of CPU seconds, which the kernel counts in 32 bits on some hosts.
const CPU_SECONDS_UNLIMITED: u64 = u32::MAX as u64;
/// The step of a sandbox that enters the working directory.
const WORKDIR_STEP: &str = "workdir";

/// A Cell whose commands run in sandboxes of this host: uid 10001, no network, every limit enforced that the host
/// can enforce.
#[derive(Debug)]
pub struct SandboxedCell {
    executor: Arc<SandboxExecutor>,
    settings: CellSettings,
    layout: CellLayout,
    cancel: CancelToken,
    stage: CellStage<SandboxedFiles>,
}

/// The files of a started Cell. They are in memory.
struct SandboxedFiles {
    // Dropped before the id, which the next one may have.
    fs: WorkspaceFs,
    host_id: Arc<AcquiredId>,
}

impl SandboxedCell {
    /// A Cell that is not started. `cancel` ends its commands.
    pub fn new(
        executor: Arc<SandboxExecutor>,
        settings: CellSettings,
        cancel: CancelToken,
    ) -> Self {
        let (layout, stage) = (CellLayout::sandboxed(), CellStage::default());
        Self { executor, settings, layout, cancel, stage }
    }

    fn make(&self) -> Result<SandboxedFiles, ExecError> {
        let unavailable = |reason: &dyn fmt::Display| {
            ExecError::new(ExecCode::BackendUnavailable, format!("sandboxed: {reason}"))
        };
        let acquired = || self.executor.acquire_host_id().map_err(|failure| unavailable(&failure));
        let probe = acquired()?;
        let layers = LayerHost::open(probe.id()).map_err(|error| unavailable(&error))?;
        drop(probe);
        let host_id = Arc::new(acquired()?);
        let own = DiskSpace {
            bytes: self.settings.limits.disk_bytes_max.max(DISK_BYTES_MIN),
            inodes: INODES_MAX,
        };
        let source =
            DiskSpace { bytes: SOURCE_LIMITS.bytes_max, inodes: SOURCE_LIMITS.entries_max };
        let room = if self.settings.source.is_some() { own.plus(source) } else { own };
        let fs = layers.create(room, Storage::Memory, host_id.id());
        let fs = fs.map_err(|error| ExecError::failed("make files", error))?;
        let mut files = SandboxedFiles { fs, host_id };
        files.make_env()?;
        if let Some(source) = &self.settings.source {
            copy_source(source, files.sandbox(&self.layout)?.as_fd(), files.owner())?;
            let used =
                files.fs.usage().map_err(|error| ExecError::failed("measure files", error))?;
            let used = DiskSpace { bytes: used.used_bytes, inodes: used.used_inodes };
            let limited = files.fs.set_limit(used.plus(own));
            limited.map_err(|error| ExecError::failed("limit files", error))?;
        }
        Ok(files)
    }

    fn controls(&self) -> StepControls {
        let not_enforced = self.executor.sandbox().not_enforced().to_vec();
        StepControls { executor: CellExecutorKind::Sandboxed, not_enforced }
    }

    fn files<'cell>(&'cell self, files: &'cell SandboxedFiles) -> CellFiles<'cell> {
        CellFiles { root: files.fs.tree(), layout: &self.layout, owner: files.owner() }
    }
}

impl SandboxedFiles {
    fn owner(&self) -> Owner {
        let id = self.fs.host_id().id();
        Owner { uid: id, gid: id }
    }

    fn make_env(&self) -> Result<(), ExecError> {
        let Owner { uid, gid } = self.owner();
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        let made = mkdirat(self.fs.tree(), ENV, Mode::from_bits_truncate(0o755)).and_then(|()| {
            let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
            fchownat(self.fs.tree(), ENV, Some(uid), Some(gid), flags)
        });
        made.map_err(|errno| ExecError::failed("make /env", errno))
    }

    /// Opens the sandbox's directory. No command has run yet.
    fn sandbox(&self, layout: &CellLayout) -> Result<OwnedFd, ExecError> {
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let [name, ..] = layout.names();
        openat2(self.fs.tree(), name, how)
            .map_err(|errno| ExecError::failed("open /workspace", errno))
    }

    /// The mounts for one command.
    fn mounts(&self, layout: &CellLayout) -> Result<MountedWorkspace, SetupFailure> {
        let failure =
            |error: &dyn fmt::Display| SetupFailure::from_words("mounts", error.to_string());
        let (WorkspaceMounts { workspace, tmp }, env) =
            self.fs.mounts_with(ENV).map_err(|error| failure(&error))?;
        Ok(MountedWorkspace {
            workspace,
            tmp,
            path: WorkspacePath::default(),
            others: vec![MountedDirectory { mount: env, target: layout.env().to_owned() }],
            own_bytes_max: OWN_BYTES_MAX,
            own_inodes_max: OWN_INODES_MAX,
        })
    }
}

impl CellExecutor for SandboxedCell {
    fn start(&self) -> Result<(), ExecError> {
        self.stage.start(|| self.make())
    }

    fn run(&self, request: &ExecRequest) -> Result<ExecResult, ExecError> {
        self.stage.with(|files| {
            let step = request.checked(&self.layout)?;
            let output = StepOutput::new(&request.limits(self.settings.limits));
            let spec = spec(step, request, self.settings.limits)?;
            let mounts = files.mounts(&self.layout).map_err(|failure| no_sandbox(&failure))?;
            let lender = Retained::of(Arc::clone(&files.host_id) as _);
            let watch = Watch::of(self.cancel.clone());
            let sink = Some(Box::new(output.clone()) as _);
            let host_id = files.fs.host_id();
            let ended = self.executor.run_mounted(spec, mounts, host_id, lender, &watch, sink);
            match ended {
                Ok(report) => Ok(result(request, report, &output)),
                Err(NotStarted::Exec { errno: libc::E2BIG }) => {
                    Err(ExecError::new(ExecCode::InvalidArgv, "argv and env are too long"))
                }
                Err(NotStarted::Exec { errno }) => {
                    Ok(ExecResult::not_executed(request, errno, self.controls()))
                }
                Err(NotStarted::Setup(failure)) => Err(no_sandbox(&failure)),
            }
        })
    }

    fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError> {
        self.stage.with(|files| self.files(files).put(path, content, mode))
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, ExecError> {
        self.stage.with(|files| self.files(files).get(path))
    }

    fn stop(&self) {
        self.stage.stop();
    }

    fn describe(&self) -> Result<CellDescription, ExecError> {
        let sandbox = self.executor.sandbox();
        self.stage.with(|_| {
            Ok(CellDescription {
                kind: CellExecutorKind::Sandboxed,
                sandbox: self.layout.sandbox().to_owned(),
                env: self.layout.env().to_owned(),
                enforced: sandbox.enforced(),
                not_enforced: sandbox.not_enforced().to_vec(),
            })
        })
    }
}

fn spec(step: CellStep, request: &ExecRequest, limits: StepLimits) -> Result<RunSpec, ExecError> {
    let env = step.env.into_iter().map(|(name, value)| format!("{name}={value}"));
    let stdin = match request.stdin.is_empty() {
        true => StdinSource::Null,
        false => StdinSource::Bytes(request.stdin.clone()),
    };
    Ok(RunSpec {
        argv: c_strings(step.argv)?,
        env: c_strings(env)?,
        workdir: step.cwd,
        stdin,
        limits: sandbox_limits(limits, request.timeout),
        excess_output: ExcessOutput::Dropped { stdout_bytes_max: 0, stderr_bytes_max: 0 },
        ..RunSpec::default()
    })
}

/// The limits of a sandbox. That of the disk is the Cell's.
fn sandbox_limits(limits: StepLimits, wall: Duration) -> Limits {
    Limits {
        wall,
        cpu_seconds_max: CPU_SECONDS_UNLIMITED,
        memory_bytes_max: limits.memory_bytes_max,
        processes_max: limits.processes_max,
        file_bytes_max: u64::MAX,
        open_files_max: OPEN_FILES_MAX,
        output_bytes_max: None,
        ..Limits::default()
    }
}

/// The texts as the kernel takes them. They have been checked.
fn c_strings(texts: impl IntoIterator<Item = String>) -> Result<Vec<CString>, ExecError> {
    let converted = texts.into_iter().map(CString::new).collect::<Result<_, _>>();
    converted.map_err(|_| ExecError::new(ExecCode::InvalidArgv, "a word holds a NUL"))
}

fn result(request: &ExecRequest, report: RunReport, output: &StepOutput) -> ExecResult {
    let usage = StepUsage {
        wall_ms: Some(report.usage.wall_ms),
        cpu_ms: Some(report.usage.cpu_ms),
        memory_peak_bytes: Some(report.usage.memory_peak_bytes),
    };
    let controls =
        StepControls { executor: CellExecutorKind::Sandboxed, not_enforced: report.not_enforced };
    ExecResult::of(request, report.outcome, output.take(), usage, controls)
}

/// The error of a command whose sandbox could not be made.
fn no_sandbox(failure: &SetupFailure) -> ExecError {
    if failure.step.starts_with(WORKDIR_STEP) {
        let words = format!("cwd: {}", failure.reason);
        return ExecError::new(ExecCode::InvalidCwd, words);
    }
    ExecError::new(ExecCode::BackendFailed, failure.to_string()).with("step", &*failure.step)
}

impl fmt::Debug for SandboxedFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SandboxedFiles").finish_non_exhaustive()
    }
}
