//! The executor that is the default: a sandbox for each command, over files that last for the Cell.

mod base;
mod command;
mod compare;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use super::capture::StepOutput;
use super::error::{ExecCode, ExecError};
use super::executor::{
    AgentDifference, AgentSeat, CellDescription, CellExecutor, DifferenceRules, TrialCell,
};
use super::files::{CellEntry, CellFiles};
use super::layout::CellLayout;
use super::plan::{CellExecutorKind, CellSettings};
use super::request::ExecRequest;
use super::result::ExecResult;
use super::stage::CellStage;
use crate::evaluation::patch::PatchError;
use crate::evaluation::trees::{PhaseTree, PreparedTree};
use crate::executor::{SandboxExecutor, put_home_files};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{SetupFailure, Watch};
use cofferdam_tree::Owner;

pub(super) use self::base::copy_to_host;
pub use self::base::{CellBase, CellTrees};
use self::base::{freeze, open_sandbox, replace_sandbox};
use self::command::CASE_DIRECTORY;
pub(super) use self::compare::compare;

/// A Cell whose commands run in sandboxes of this host: uid 10001, no network, every limit enforced that the host
/// can enforce.
#[derive(Debug)]
pub struct SandboxedCell {
    origin: CellOrigin,
    executor: Arc<SandboxExecutor>,
    settings: CellSettings,
    layout: CellLayout,
    cancel: CancelToken,
    stage: CellStage<SandboxedFiles>,
}

/// What a Cell begins with.
#[derive(Debug)]
enum CellOrigin {
    /// A copy of its source, in memory.
    Source,
    /// A copy of its source.
    Trees(CellTrees),
    /// Files that are there.
    Base(CellBase),
}

/// The files of a started Cell.
#[derive(Debug, Default)]
struct SandboxedFiles {
    /// Those that commands see; none once the agent's work is compared.
    tree: Option<PreparedTree>,
    /// What the agent got.
    checkpoint: Option<CellBase>,
    /// What the agent left.
    left: Option<CellBase>,
    /// What graders get.
    graded: Option<CellBase>,
}

impl SandboxedCell {
    /// A Cell that is not started, whose files are in memory. `cancel` ends its commands.
    pub fn new(
        executor: Arc<SandboxExecutor>,
        settings: CellSettings,
        cancel: CancelToken,
    ) -> Self {
        Self::of(CellOrigin::Source, executor, settings, cancel)
    }

    /// The same with files that `trees` makes.
    pub fn in_trees(trees: CellTrees, settings: CellSettings, cancel: CancelToken) -> Self {
        let executor = Arc::clone(trees.executor());
        Self::of(CellOrigin::Trees(trees), executor, settings, cancel)
    }

    /// A Cell that begins with the files of `base` and not with its source.
    pub fn over(
        base: CellBase,
        executor: Arc<SandboxExecutor>,
        settings: CellSettings,
        cancel: CancelToken,
    ) -> Self {
        Self::of(CellOrigin::Base(base), executor, settings, cancel)
    }

    fn of(
        origin: CellOrigin,
        executor: Arc<SandboxExecutor>,
        settings: CellSettings,
        cancel: CancelToken,
    ) -> Self {
        let (layout, stage) = (CellLayout::sandboxed(), CellStage::default());
        Self { origin, executor, settings, layout, cancel, stage }
    }

    /// Freezes the files, with which other Cells can begin. No command runs in this Cell afterwards.
    ///
    /// # Errors
    /// It is not started, or its files cannot be frozen.
    pub fn freeze(&self) -> Result<CellBase, ExecError> {
        self.stage.change(|files| {
            let frozen = freeze(unshared(files.tree)?)?;
            Ok((SandboxedFiles::default(), frozen))
        })
    }

    fn make(&self) -> Result<SandboxedFiles, ExecError> {
        let CellSettings { source, limits, .. } = &self.settings;
        let tree = match &self.origin {
            CellOrigin::Source => {
                CellTrees::open(Arc::clone(&self.executor), None)?.make(source.as_deref(), limits)
            }
            CellOrigin::Trees(trees) => trees.make(source.as_deref(), limits),
            CellOrigin::Base(base) => base.fork(limits),
        }?;
        Ok(SandboxedFiles { tree: Some(self.prepared(tree)), ..SandboxedFiles::default() })
    }

    fn with_tree<T>(
        &self,
        act: impl FnOnce(&PhaseTree) -> Result<T, ExecError>,
    ) -> Result<T, ExecError> {
        self.stage.with(|files| act(files.tree.as_ref().ok_or_else(compared)?.tree()))
    }

    /// The files of which the next command may find a prepared sandbox.
    fn prepared(&self, tree: PhaseTree) -> PreparedTree {
        PreparedTree::new(tree, &self.executor)
    }

    fn files<'cell>(&'cell self, tree: &'cell PhaseTree) -> CellFiles<'cell> {
        CellFiles { root: tree.root(), layout: &self.layout, owner: tree.owner() }
    }

    fn run_in(
        &self,
        prepared: &PreparedTree,
        request: &ExecRequest,
    ) -> Result<ExecResult, ExecError> {
        let tree = prepared.tree();
        let step = request.checked(&self.layout)?;
        let output = StepOutput::new(&request.limits(self.settings.limits));
        let spec = command::spec(step, request, &self.settings)?;
        if let Some(grant) = &request.access.egress {
            put_home_files(tree.root(), tree.owner(), grant.service().as_ref());
        }
        let watch = Watch::of(self.cancel.clone());
        let sink = Some(Box::new(output.clone()) as _);
        let ended = prepared.run(spec, &watch, sink);
        command::result(request, ended, &output, self.executor.sandbox().not_enforced())
    }

    fn compare(
        &self,
        files: SandboxedFiles,
        rules: &DifferenceRules,
        deadline: Deadline,
    ) -> Result<(SandboxedFiles, Result<AgentDifference, PatchError>), ExecError> {
        let Some(base) = &files.checkpoint else {
            return Err(ExecError::failed("compare", "the Cell has no checkpoint"));
        };
        let left = freeze(unshared(files.tree)?)?;
        let ends = (&self.cancel, deadline);
        let compared = compare((base, &left), &self.settings.limits, rules, ends);
        let (graded, difference) = match compared {
            Ok((difference, graded)) => (Some(graded), Ok(difference)),
            Err(error) => (None, Err(error)),
        };
        Ok((SandboxedFiles { tree: None, left: Some(left), graded, ..files }, difference))
    }
}

impl CellExecutor for SandboxedCell {
    fn start(&self) -> Result<(), ExecError> {
        self.stage.start(|| self.make())
    }

    fn run(&self, request: &ExecRequest) -> Result<ExecResult, ExecError> {
        self.stage.with(|files| self.run_in(files.tree.as_ref().ok_or_else(compared)?, request))
    }

    fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError> {
        self.with_tree(|tree| self.files(tree).put(path, content, mode))
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, ExecError> {
        self.with_tree(|tree| self.files(tree).get(path))
    }

    fn remove(&self, path: &str) -> Result<(), ExecError> {
        self.with_tree(|tree| self.files(tree).remove(path))
    }

    fn list(&self, path: &str) -> Result<Vec<CellEntry>, ExecError> {
        self.with_tree(|tree| self.files(tree).list(path))
    }

    fn open_sandbox(&self) -> Result<OwnedFd, ExecError> {
        self.with_tree(open_sandbox)
    }

    fn replace_sandbox(
        &self,
        fill: &mut dyn FnMut(BorrowedFd<'_>, Owner) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        self.stage.change(|files| {
            let tree = replace_sandbox(unshared(files.tree)?, &self.settings.limits, fill)?;
            Ok((SandboxedFiles { tree: Some(self.prepared(tree)), ..files }, ()))
        })
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
                case_dir: self.settings.case_dir.as_ref().map(|_| CASE_DIRECTORY.into()),
                enforced: sandbox.enforced(),
                not_enforced: sandbox.not_enforced().to_vec(),
            })
        })
    }
}

impl TrialCell for SandboxedCell {
    fn as_executor(&self) -> &dyn CellExecutor {
        self
    }

    fn agent(&self) -> AgentSeat<'_> {
        AgentSeat { cell: self, has_env: true }
    }

    fn keep(&self, directory: &Path) -> Result<(), ExecError> {
        let kept = self.stage.with(|files| {
            let left = files.left.as_ref().or(files.graded.as_ref()).or(files.checkpoint.as_ref());
            left.cloned().ok_or_else(compared)
        })?;
        kept.copy_out(directory)
    }

    fn checkpoint(&self) -> Result<(), ExecError> {
        self.stage.change(|files| {
            let base = freeze(unshared(files.tree)?)?;
            let tree = Some(self.prepared(base.fork(&self.settings.limits)?));
            Ok((SandboxedFiles { tree, checkpoint: Some(base), ..SandboxedFiles::default() }, ()))
        })
    }

    fn difference(
        &self,
        rules: &DifferenceRules,
        deadline: Deadline,
    ) -> Result<AgentDifference, PatchError> {
        let compared = self.stage.change(|files| self.compare(files, rules, deadline));
        compared.map_err(|error| {
            PatchError::Sandbox(SetupFailure::from_words("compare", error.to_string()))
        })?
    }

    fn grader_cell(&self) -> Result<Box<dyn CellExecutor + '_>, ExecError> {
        let graded = self.stage.with(|files| {
            let graded = files.graded.clone();
            graded.ok_or_else(|| ExecError::failed("grade", "no work of an agent is compared"))
        })?;
        let (executor, cancel) = (Arc::clone(&self.executor), self.cancel.clone());
        let cell = Self::over(graded, executor, self.settings.clone(), cancel);
        cell.start()?;
        Ok(Box::new(cell))
    }
}

/// The files, of which no prepared sandbox is left.
fn unshared(tree: Option<PreparedTree>) -> Result<PhaseTree, ExecError> {
    let tree = tree.ok_or_else(compared)?.into_tree();
    tree.map_err(|failure| ExecError::failed("end prepared sandbox", failure))
}

fn compared() -> ExecError {
    ExecError::new(ExecCode::Stopped, "the work of the agent is compared: nothing runs any more")
}
