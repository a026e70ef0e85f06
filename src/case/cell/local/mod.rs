//! The executor that isolates nothing: commands run on the host, as the caller.
//!
//! Each command has a process of ours above it (`helper.rs`), which adopts whatever the command leaves behind and
//! kills it, so that also a process in a session of its own ends with the command.

mod descendants;
mod directory;
mod helper;
mod message;
mod process;

use std::path::PathBuf;

use nix::errno::Errno;

use self::directory::CellDirectory;
use self::message::StepReply;
use self::process::{StepEnd, StepProcess, Stopped};
use super::capture::StepOutput;
use super::error::{ExecCode, ExecError};
use super::executor::{CellDescription, CellExecutor};
use super::files::CellFiles;
use super::plan::{CellExecutorKind, CellSettings};
use super::request::ExecRequest;
use super::result::{ExecResult, StepControls, StepUsage};
use super::stage::CellStage;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{Enforced, LimitKind, Outcome};

pub use helper::serve_step;

/// What is not enforced: everything.
const NOT_ENFORCED: [&str; 8] =
    ["namespaces", "seccomp", "landlock", "memory", "processes", "disk", "cpu", "network"];
const REASON: &str = "the local executor isolates nothing";

/// What a local Cell is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSettings {
    /// The Cell.
    pub cell: CellSettings,
    /// The directory in which the Cell gets its own.
    pub base: PathBuf,
    /// The program `cofferdam`, which runs above each command.
    pub helper: PathBuf,
}

/// A Cell whose commands run on the host.
#[derive(Debug)]
pub struct LocalCell {
    settings: LocalSettings,
    cancel: CancelToken,
    stage: CellStage<CellDirectory>,
}

impl LocalCell {
    /// A Cell that is not started. `cancel` ends its commands.
    pub fn new(settings: LocalSettings, cancel: CancelToken) -> Self {
        Self { settings, cancel, stage: CellStage::default() }
    }

    fn files<'cell>(&self, directory: &'cell CellDirectory) -> CellFiles<'cell> {
        let (layout, owner) = (directory.layout(), CellDirectory::owner());
        CellFiles { root: directory.root(), layout, owner }
    }

    fn run_in(
        &self,
        directory: &CellDirectory,
        request: &ExecRequest,
    ) -> Result<ExecResult, ExecError> {
        let step = request.checked(directory.layout())?;
        let output = StepOutput::new(&request.limits(self.settings.cell.limits));
        let process = StepProcess::start(&self.settings.helper, &step, &request.stdin)?;
        let end = process.supervise(request.timeout, &self.cancel, &output)?;
        result(request, end, &output)
    }
}

impl CellExecutor for LocalCell {
    fn start(&self) -> Result<(), ExecError> {
        let LocalSettings { cell, base, .. } = &self.settings;
        self.stage.start(|| CellDirectory::make(base, cell.source.as_deref()))
    }

    fn run(&self, request: &ExecRequest) -> Result<ExecResult, ExecError> {
        self.stage.with(|directory| self.run_in(directory, request))
    }

    fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError> {
        self.stage.with(|directory| self.files(directory).put(path, content, mode))
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, ExecError> {
        self.stage.with(|directory| self.files(directory).get(path))
    }

    fn stop(&self) {
        self.stage.stop();
    }

    fn describe(&self) -> Result<CellDescription, ExecError> {
        self.stage.with(|directory| {
            let layout = directory.layout();
            Ok(CellDescription {
                kind: CellExecutorKind::Local,
                sandbox: layout.sandbox().to_owned(),
                env: layout.env().to_owned(),
                enforced: Enforced::default(),
                not_enforced: not_enforced(),
            })
        })
    }
}

fn not_enforced() -> Vec<String> {
    NOT_ENFORCED.iter().map(|name| format!("{name}: {REASON}")).collect()
}

fn result(
    request: &ExecRequest,
    end: StepEnd,
    output: &StepOutput,
) -> Result<ExecResult, ExecError> {
    let controls = StepControls { executor: CellExecutorKind::Local, not_enforced: not_enforced() };
    let ended = match end.reply {
        StepReply::BadCwd { errno } => {
            let words = format!("cwd: {}", Errno::from_raw(errno));
            return Err(ExecError::new(ExecCode::InvalidCwd, words));
        }
        StepReply::NotExecuted { errno: libc::E2BIG } => {
            return Err(ExecError::new(ExecCode::InvalidArgv, "argv and env are too long"));
        }
        StepReply::NotExecuted { errno } => {
            return Ok(ExecResult::not_executed(request, errno, controls));
        }
        StepReply::Failed { step, errno } => {
            return Err(ExecError::failed("helper", format!("{step}: {}", Errno::from_raw(errno))));
        }
        StepReply::Ended(ended) => ended,
    };
    let outcome = match (end.stopped, ended.signal) {
        (Some(Stopped::Late), _) => Outcome::LimitHit { kind: LimitKind::WallTime, code: None },
        (Some(Stopped::Cancelled), _) => Outcome::Cancelled,
        (None, Some(signal)) => Outcome::Signaled { signal },
        (None, None) => Outcome::Exited { code: ended.code },
    };
    let usage = StepUsage {
        wall_ms: Some(ended.wall_ms),
        cpu_ms: Some(ended.cpu_ms),
        memory_peak_bytes: Some(ended.memory_peak_bytes),
    };
    Ok(ExecResult::of(request, outcome, output.take(), usage, controls))
}
