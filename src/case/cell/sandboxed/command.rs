//! One command of a Cell in a sandbox: what is run, and what came of it.

use std::ffi::CString;
use std::path::PathBuf;
use std::time::Duration;

use crate::case::cell::capture::StepOutput;
use crate::case::cell::error::{ExecCode, ExecError};
use crate::case::cell::plan::{CellExecutorKind, CellSettings, StepLimits};
use crate::case::cell::request::{CASE_VARIABLE, CellStep, ExecRequest, StepAccess};
use crate::case::cell::result::{ExecResult, StepControls, StepUsage};
use crate::egress::EgressGrant;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{
    Bind, ExcessOutput, Limits, NotStarted, RunReport, RunSpec, SetupFailure, StdinSource,
};

/// Where provisioning and setup see the directory of the Case.
pub(super) const CASE_DIRECTORY: &str = "/case";
/// Open files of one process.
const OPEN_FILES_MAX: u64 = 4096;
/// Stands for no limit of CPU seconds, which the kernel counts in 32 bits on some hosts.
const CPU_SECONDS_UNLIMITED: u64 = u32::MAX as u64;
/// The step of a sandbox that enters the working directory.
const WORKDIR_STEP: &str = "workdir";

/// The run of `step`.
pub(super) fn spec(
    step: CellStep,
    request: &ExecRequest,
    settings: &CellSettings,
) -> Result<RunSpec, ExecError> {
    let CellStep { argv, mut env, cwd } = step;
    if weakened::lacks(Wall::Clean) {
        env.extend(std::env::vars());
    }
    let StepAccess { shows_case, egress } = &request.access;
    let shows_case = *shows_case || weakened::lacks(Wall::Hidden);
    let case_dir = settings.case_dir.as_ref().filter(|_| shows_case);
    if case_dir.is_some() {
        env.insert(CASE_VARIABLE.to_owned(), CASE_DIRECTORY.to_owned());
    }
    env.extend(egress.as_ref().map(EgressGrant::environment).unwrap_or_default());
    let env = env.into_iter().map(|(name, value)| format!("{name}={value}"));
    let stdin = match request.stdin.is_empty() {
        true => StdinSource::Null,
        false => StdinSource::Bytes(request.stdin.clone()),
    };
    let shown = case_dir.map(|source| Bind {
        source: source.clone(),
        target: PathBuf::from(CASE_DIRECTORY),
        read_only: true,
    });
    Ok(RunSpec {
        argv: c_strings(argv)?,
        env: c_strings(env)?,
        workdir: cwd,
        stdin,
        limits: sandbox_limits(settings.limits, request.timeout),
        excess_output: ExcessOutput::Dropped { stdout_bytes_max: 0, stderr_bytes_max: 0 },
        binds: shown.into_iter().collect(),
        egress: egress.as_ref().map(EgressGrant::service),
        ..RunSpec::default()
    })
}

/// The result of a command that ended so.
pub(super) fn result(
    request: &ExecRequest,
    ended: Result<RunReport, NotStarted>,
    output: &StepOutput,
    not_enforced: &[String],
) -> Result<ExecResult, ExecError> {
    let executor = CellExecutorKind::Sandboxed;
    let report = match ended {
        Ok(report) => report,
        Err(NotStarted::Exec { errno: libc::E2BIG }) => {
            return Err(ExecError::new(ExecCode::InvalidArgv, "argv and env are too long"));
        }
        Err(NotStarted::Exec { errno }) => {
            let controls = StepControls { executor, not_enforced: not_enforced.to_vec() };
            return Ok(ExecResult::not_executed(request, errno, controls));
        }
        Err(NotStarted::Setup(failure)) => return Err(no_sandbox(&failure)),
    };
    let usage = StepUsage {
        wall_ms: Some(report.usage.wall_ms),
        cpu_ms: Some(report.usage.cpu_ms),
        memory_peak_bytes: Some(report.usage.memory_peak_bytes),
    };
    let controls = StepControls { executor, not_enforced: report.not_enforced };
    Ok(ExecResult::of(request, report.outcome, output.take(), usage, controls))
}

/// The error of a command whose sandbox could not be made.
pub(super) fn no_sandbox(failure: &SetupFailure) -> ExecError {
    if failure.step.starts_with(WORKDIR_STEP) {
        let words = format!("cwd: {}", failure.reason);
        return ExecError::new(ExecCode::InvalidCwd, words);
    }
    ExecError::new(ExecCode::BackendFailed, failure.to_string()).with("step", &*failure.step)
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
