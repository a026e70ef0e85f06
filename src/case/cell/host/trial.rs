//! A Cell in a directory of the host in which an agent is tried and its work graded.
//!
//! The files are kept and compared as those of sandboxed Cells are: they are copied to file systems of their own, where
//! no process reaches them. Graders get a fresh tree at the same path.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::container::ContainerCell;
use super::local::LocalCell;
use crate::case::cell::error::{ExecCode, ExecError};
use crate::case::cell::executor::{
    AgentDifference, AgentSeat, CellDescription, CellExecutor, DifferenceRules, TrialCell,
};
use crate::case::cell::files::CellEntry;
use crate::case::cell::plan::CellSettings;
use crate::case::cell::request::ExecRequest;
use crate::case::cell::result::ExecResult;
use crate::case::cell::sandboxed::{CellBase, CellTrees, SandboxedCell, compare, copy_to_host};
use crate::case::source::git::worktree::CellWorktree;
use crate::evaluation::patch::PatchError;
use cofferdam_core::SetupFailure;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::{Owner, remove_tree};

/// The file with the name of the container that is kept.
const CONTAINER_FILE: &str = "container";
/// The file of a worktree that leads to its repository.
const GIT_LINK: &str = ".git";

/// What runs the commands of a Cell in a directory.
#[derive(Debug)]
pub enum HostCell {
    /// The host itself.
    Local(Box<LocalCell>),
    /// A container. Unless `has_agent`, the agent works in sandboxes over a copy of the files.
    Container {
        /// The Cell.
        cell: Box<ContainerCell>,
        /// Whether the agent works in it.
        has_agent: bool,
    },
    /// Another's executor, which keeps its sandbox and environment where its description says.
    Own(Box<dyn CellExecutor>),
}

/// A Cell in a directory of the host, for a trial.
#[derive(Debug)]
pub struct HostTrialCell {
    cell: HostCell,
    trees: CellTrees,
    settings: CellSettings,
    cancel: CancelToken,
    kept: Mutex<KeptFiles>,
    /// The Cell of an agent that does not work in the directory.
    apart: OnceLock<SandboxedCell>,
    /// What the sandbox is, if it is a worktree. Dropped when its files are gone.
    worktree: OnceLock<CellWorktree>,
}

/// The files of a Cell at the moments that count.
#[derive(Debug, Default, Clone)]
struct KeptFiles {
    checkpoint: Option<CellBase>,
    left: Option<CellBase>,
    graded: Option<CellBase>,
}

/// The fresh Cell of a grader: the directory with other files.
#[derive(Debug)]
struct GraderSeat<'a>(&'a dyn CellExecutor);

impl HostTrialCell {
    /// A Cell that is not started. `trees` keeps its files.
    pub fn new(
        cell: HostCell,
        trees: CellTrees,
        settings: CellSettings,
        cancel: CancelToken,
    ) -> Self {
        let (kept, apart, worktree) = (Mutex::default(), OnceLock::new(), OnceLock::new());
        Self { cell, trees, settings, cancel, kept, apart, worktree }
    }

    /// Keeps `worktree`, the sandbox of the started Cell, as long as the Cell. Graders get its files without `.git`.
    pub fn keep_worktree(&self, worktree: CellWorktree) {
        // A Cell has one.
        let _ = self.worktree.set(worktree);
    }

    fn executor(&self) -> &dyn CellExecutor {
        match &self.cell {
            HostCell::Local(cell) => &**cell,
            HostCell::Container { cell, .. } => &**cell,
            HostCell::Own(cell) => &**cell,
        }
    }

    fn kept(&self) -> MutexGuard<'_, KeptFiles> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directories of the Cell: the sandbox, the environment.
    fn directories(&self) -> Result<[std::path::PathBuf; 2], ExecError> {
        let CellDescription { sandbox, env, .. } = self.executor().describe()?;
        Ok([sandbox, env])
    }

    /// The files as they are now; above `base`, if it is there.
    fn frozen(&self, base: Option<&CellBase>) -> Result<CellBase, ExecError> {
        let [sandbox, env] = self.directories()?;
        let open =
            |path: &Path| File::open(path).map_err(|error| ExecError::failed("open files", error));
        let (sandbox, env) = (open(&sandbox)?, open(&env)?);
        let left_out = self.worktree.get().map(|_| GIT_LINK);
        self.trees.copied([sandbox.as_fd(), env.as_fd()], left_out, base)
    }

    /// Puts `files` in the place of what the directories hold.
    fn replace(&self, files: &CellBase) -> Result<(), ExecError> {
        let failed = |error: &dyn std::fmt::Display| ExecError::failed("replace files", error);
        for (path, name) in self.directories()?.iter().zip(["workspace", "env"]) {
            let (parent, own) = (path.parent().unwrap_or(Path::new("/")), path.file_name());
            let parent = File::open(parent).map_err(|error| failed(&error))?;
            let removed = remove_tree(parent.as_fd(), own.unwrap_or(OsStr::new("")));
            let left = removed.map_err(|error| failed(&error))?.left;
            if left > 0 {
                return Err(failed(&format_args!("{left} entries cannot be removed")));
            }
            files.show(name, |from| copy_to_host(from, path))?;
        }
        Ok(())
    }

    /// Keeps the container, if there is one, and writes its name into `directory`.
    fn keep_container(&self, directory: &Path) -> Result<(), ExecError> {
        let HostCell::Container { cell, .. } = &self.cell else { return Ok(()) };
        let name = cell.keep()?;
        fs::write(directory.join(CONTAINER_FILE), &name).map_err(|error| {
            ExecError::failed("keep container", format!("{name} is kept, but: {error}"))
        })
    }

    fn compared(
        &self,
        rules: &DifferenceRules,
        deadline: Deadline,
    ) -> Result<Result<AgentDifference, PatchError>, ExecError> {
        let missing = || ExecError::failed("compare", "the Cell has no checkpoint");
        let base = self.kept().checkpoint.clone().ok_or_else(missing)?;
        let left = match self.apart.get() {
            Some(apart) => apart.freeze()?,
            None => self.frozen(Some(&base))?,
        };
        let ends = (&self.cancel, deadline);
        let compared = compare((&base, &left), &self.settings.limits, rules, ends);
        let mut kept = self.kept();
        kept.left = Some(left);
        Ok(compared.map(|(difference, graded)| {
            kept.graded = Some(graded);
            difference
        }))
    }
}

impl TrialCell for HostTrialCell {
    fn as_executor(&self) -> &dyn CellExecutor {
        self.executor()
    }

    fn agent(&self) -> AgentSeat<'_> {
        match self.apart.get() {
            Some(apart) => AgentSeat { cell: apart, has_env: false },
            None => AgentSeat { cell: self.executor(), has_env: true },
        }
    }

    fn checkpoint(&self) -> Result<(), ExecError> {
        let base = self.frozen(None)?;
        if let HostCell::Container { cell, has_agent } = &self.cell {
            cell.commit()?;
            if !has_agent {
                let executor = Arc::clone(self.trees.executor());
                let settings = CellSettings { case_dir: None, ..self.settings.clone() };
                let cancel = self.cancel.clone();
                let apart = SandboxedCell::over(base.clone(), executor, settings, cancel);
                apart.start()?;
                // A checkpoint is taken once.
                let _ = self.apart.set(apart);
            }
        }
        *self.kept() = KeptFiles { checkpoint: Some(base), ..KeptFiles::default() };
        Ok(())
    }

    fn difference(
        &self,
        rules: &DifferenceRules,
        deadline: Deadline,
    ) -> Result<AgentDifference, PatchError> {
        self.compared(rules, deadline).map_err(|error| {
            PatchError::Sandbox(SetupFailure::from_words("compare", error.to_string()))
        })?
    }

    fn grader_cell(&self) -> Result<Box<dyn CellExecutor + '_>, ExecError> {
        let missing = || ExecError::failed("grade", "no work of an agent is compared");
        let graded = self.kept().graded.clone().ok_or_else(missing)?;
        if let HostCell::Container { cell, .. } = &self.cell {
            cell.renew()?;
        }
        self.replace(&graded)?;
        Ok(Box::new(GraderSeat(self.executor())))
    }

    fn keep_caches(&self) -> Result<(), ExecError> {
        match &self.cell {
            HostCell::Local(_) | HostCell::Own(_) => Ok(()),
            HostCell::Container { cell, .. } => cell.keep_caches(),
        }
    }

    fn keep(&self, directory: &Path) -> Result<(), ExecError> {
        let named = self.keep_container(directory);
        let kept = self.kept().clone();
        let files = kept.left.or(kept.checkpoint);
        let missing = || ExecError::new(ExecCode::NotStarted, "the Cell has no files to keep");
        let copied = files.ok_or_else(missing).and_then(|files| files.copy_out(directory));
        named.and(copied)
    }
}

impl CellExecutor for GraderSeat<'_> {
    fn start(&self) -> Result<(), ExecError> {
        self.0.start()
    }

    fn run(&self, request: &ExecRequest) -> Result<ExecResult, ExecError> {
        self.0.run(request)
    }

    fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError> {
        self.0.put(path, content, mode)
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, ExecError> {
        self.0.get(path)
    }

    fn remove(&self, path: &str) -> Result<(), ExecError> {
        self.0.remove(path)
    }

    fn list(&self, path: &str) -> Result<Vec<CellEntry>, ExecError> {
        self.0.list(path)
    }

    fn open_sandbox(&self) -> Result<OwnedFd, ExecError> {
        self.0.open_sandbox()
    }

    fn replace_sandbox(
        &self,
        fill: &mut dyn FnMut(BorrowedFd<'_>, Owner) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        self.0.replace_sandbox(fill)
    }

    /// The directory stays: it is the next grader's too.
    fn stop(&self) {}

    fn describe(&self) -> Result<CellDescription, ExecError> {
        self.0.describe()
    }
}
