//! Parts of a trial that a user of the library brings.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::case::cell::{
    CellBase, CellDescription, CellExecutor, CellSettings, CellTrees, ExecCode, ExecError,
    SandboxedCell, TrialCell,
};
use crate::case::grade::Grader;
use crate::case::harness::Harness;
use crate::case::provision::Provisioner;
use cofferdam_core::sync::cancel::CancelToken;

/// What takes the place of ours in every trial; nothing by default.
#[derive(Default)]
pub struct OwnParts {
    /// Makes the environment, if the Case has a block `environment`. Trials that have an executor of ours share what it
    /// makes, as they do otherwise.
    pub provisioner: Option<Box<dyn Provisioner>>,
    /// Works in place of every harness, whatever its name. It has half an hour and reaches nothing.
    pub harness: Option<Arc<dyn Harness>>,
    /// Judge in place of the graders of the Case.
    pub graders: Option<Vec<Box<dyn Grader>>>,
    /// Makes the Cells.
    pub executor: Option<Box<CellMaker>>,
}

/// Makes a Cell that is not started.
pub type CellMaker = dyn Fn(OwnCellRequest<'_>) -> Result<OwnCell, ExecError> + Send + Sync;

/// What a Cell is made of.
#[derive(Debug, Clone, Copy)]
pub struct OwnCellRequest<'a> {
    /// The limits of its commands, and the copy of the Case's directory that provisioning and setup see.
    pub settings: &'a CellSettings,
    /// The source.
    pub base: &'a CellBase,
    /// Makes the files of Cells whose commands run in sandboxes.
    pub trees: &'a CellTrees,
    /// A directory of this process that no other user can enter, and that is removed with the bench.
    pub scratch: &'a Path,
    /// Ends the commands of the Cell.
    pub cancel: &'a CancelToken,
}

/// A Cell of another's making.
#[derive(Debug)]
pub enum OwnCell {
    /// Its sandbox and environment are directories of this host, which its description names, and are empty once it is
    /// started. They lie in a directory of the Cell's own below [`OwnCellRequest::scratch`]; a Cell that has them
    /// elsewhere fails. We write the source there, compare what the agent left, and put fresh files there for each grader.
    Directories(Box<dyn CellExecutor>),
    /// It keeps and compares its files itself. It begins with the source.
    Whole(Box<dyn TrialCell>),
}

impl OwnCellRequest<'_> {
    /// Our Cell with the source, whose commands run in sandboxes; not started.
    pub fn sandboxed(&self) -> SandboxedCell {
        let executor = Arc::clone(self.trees.executor());
        let (settings, cancel) = (self.settings.clone(), self.cancel.clone());
        SandboxedCell::over(self.base.clone(), executor, settings, cancel)
    }
}

/// Fails unless the directories of a Cell that is not ours lie in one of its own below `scratch`: what stands at these
/// paths is removed for each grader.
pub(super) fn check_places(cell: &CellDescription, scratch: &Path) -> Result<(), ExecError> {
    for place in [&cell.sandbox, &cell.env] {
        let real = place.canonicalize().ok();
        let above = real.as_deref().and_then(Path::parent);
        if !above.is_some_and(|above| above != scratch && above.starts_with(scratch)) {
            let words = format!("{}: is in no directory below the bench's own", place.display());
            return Err(ExecError::new(ExecCode::BackendFailed, words)
                .with("path", place.display().to_string()));
        }
    }
    if cell.env.starts_with(&cell.sandbox) || cell.sandbox.starts_with(&cell.env) {
        let words = "the sandbox and the environment of the Cell lie in each other";
        return Err(ExecError::new(ExecCode::BackendFailed, words));
    }
    Ok(())
}

impl fmt::Debug for OwnParts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OwnParts")
            .field("provisioner", &self.provisioner)
            .field("harness", &self.harness)
            .field("graders", &self.graders)
            .field("executor", &self.executor.is_some())
            .finish()
    }
}
