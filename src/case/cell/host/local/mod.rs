//! The executor that isolates nothing: commands run on the host, as the caller.
//!
//! Each command has a process of ours above it (`helper.rs`), which adopts whatever the command leaves behind and
//! kills it, so that also a process in a session of its own ends with the command.

mod helper;
mod process;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

use self::process::{StepEnd, StepProcess, Stopped};
use super::directory::CellDirectory;
use super::ended::result;
use super::message::EndedStep;
use crate::case::cell::capture::StepOutput;
use crate::case::cell::error::ExecError;
use crate::case::cell::executor::{CellDescription, CellExecutor};
use crate::case::cell::files::CellEntry;
use crate::case::cell::plan::{CellExecutorKind, CellSettings};
use crate::case::cell::request::{CASE_VARIABLE, ExecRequest};
use crate::case::cell::result::{ExecResult, StepControls};
use crate::case::cell::stage::CellStage;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{Enforced, LimitKind, Outcome};
use cofferdam_tree::Owner;

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

    fn run_in(
        &self,
        directory: &CellDirectory,
        request: &ExecRequest,
    ) -> Result<ExecResult, ExecError> {
        let mut step = request.checked(directory.layout())?;
        if let Some(case_dir) =
            self.settings.cell.case_dir.as_ref().filter(|_| request.access.shows_case)
        {
            step.env.insert(CASE_VARIABLE.to_owned(), case_dir.display().to_string());
        }
        let output = StepOutput::new(&request.limits(self.settings.cell.limits));
        let process = StepProcess::start(&self.settings.helper, &step, &request.stdin)?;
        let StepEnd { reply, stopped } =
            process.supervise(request.timeout, &self.cancel, &output)?;
        let controls =
            StepControls { executor: CellExecutorKind::Local, not_enforced: not_enforced() };
        result(request, reply, |ended| outcome(ended, stopped), &output, controls)
    }
}

impl CellExecutor for LocalCell {
    fn start(&self) -> Result<(), ExecError> {
        let LocalSettings { cell, base, .. } = &self.settings;
        self.stage.start(|| {
            let directory = CellDirectory::make(base)?;
            directory.fill(cell.source.as_deref())?;
            Ok(directory)
        })
    }

    fn run(&self, request: &ExecRequest) -> Result<ExecResult, ExecError> {
        self.stage.with(|directory| self.run_in(directory, request))
    }

    fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError> {
        self.stage.with(|directory| directory.files().put(path, content, mode))
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, ExecError> {
        self.stage.with(|directory| directory.files().get(path))
    }

    fn remove(&self, path: &str) -> Result<(), ExecError> {
        self.stage.with(|directory| directory.files().remove(path))
    }

    fn list(&self, path: &str) -> Result<Vec<CellEntry>, ExecError> {
        self.stage.with(|directory| directory.files().list(path))
    }

    fn open_sandbox(&self) -> Result<OwnedFd, ExecError> {
        self.stage.with(CellDirectory::open_sandbox)
    }

    fn replace_sandbox(
        &self,
        fill: &mut dyn FnMut(BorrowedFd<'_>, Owner) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        self.stage.with(|directory| directory.replace_sandbox(fill))
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
                case_dir: self.settings.cell.case_dir.clone(),
                enforced: Enforced::default(),
                not_enforced: not_enforced(),
            })
        })
    }
}

fn not_enforced() -> Vec<String> {
    NOT_ENFORCED.iter().map(|name| format!("{name}: {REASON}")).collect()
}

/// How a command ended.
fn outcome(ended: EndedStep, stopped: Option<Stopped>) -> Outcome {
    match (stopped, ended.signal) {
        (Some(Stopped::Late), _) => Outcome::LimitHit { kind: LimitKind::WallTime, code: None },
        (Some(Stopped::Cancelled), _) => Outcome::Cancelled,
        (None, Some(signal)) => Outcome::Signaled { signal },
        (None, None) => Outcome::Exited { code: ended.code },
    }
}
