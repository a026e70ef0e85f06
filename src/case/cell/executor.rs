//! The seam: what every executor of a Cell can do.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::{ExecCode, ExecError};
use super::files::CellEntry;
use super::plan::CellExecutorKind;
use super::request::ExecRequest;
use super::result::ExecResult;
use crate::evaluation::patch::{PatchError, WrittenPatch};
use crate::evaluation::result::OmittedPath;
use cofferdam_core::Enforced;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::Owner;

/// What an executor is, and what it enforces for every command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CellDescription {
    /// Which executor it is.
    pub kind: CellExecutorKind,
    /// Where commands see the sandbox.
    pub sandbox: PathBuf,
    /// Where they see the environment.
    pub env: PathBuf,
    /// Where those that ask for it see the directory of the Case, if there is one.
    pub case_dir: Option<PathBuf>,
    /// The controls that are enforced, each with its mechanism.
    pub enforced: Enforced,
    /// The controls that are not, each as `name: reason`.
    pub not_enforced: Vec<String>,
}

/// What of an agent's difference graders do not get, and how long it may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DifferenceRules {
    /// Patterns of files that are restored besides those that always decide how tests run.
    pub protect: Vec<String>,
    /// Patterns of files that are not restored.
    pub unprotect: Vec<String>,
    /// Files that the oracle's patch changes, which are not restored.
    pub solution: Vec<String>,
    /// Patterns of files that are restored in any case: reports, and places of hidden files.
    pub always: Vec<String>,
    /// The longest patch, bytes.
    pub patch_bytes_max: u64,
}

/// What an agent did to the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentDifference {
    /// As a patch in git's format.
    pub patch: WrittenPatch,
    /// What the patch cannot have.
    pub omitted: Vec<OmittedPath>,
    /// What graders get as the agent got it.
    pub protected: Vec<String>,
}

/// Where an agent works.
#[derive(Debug, Clone, Copy)]
pub struct AgentSeat<'a> {
    /// What runs its commands.
    pub cell: &'a dyn CellExecutor,
    /// Whether it has the environment of the Cell. One that was made for a container is of no use outside of it.
    pub has_env: bool,
}

/// A Cell in which an agent can be tried and its work graded.
pub trait TrialCell: Send + Sync + fmt::Debug {
    /// What runs its commands.
    fn as_executor(&self) -> &dyn CellExecutor;

    /// Where the agent works, once there is a checkpoint.
    fn agent(&self) -> AgentSeat<'_>;

    /// Keeps what lasts between Cells: the environment is made.
    ///
    /// # Errors
    /// As [`CellExecutor::run`].
    fn keep_caches(&self) -> Result<(), ExecError> {
        Ok(())
    }

    /// Copies what the agent left, or what it got if it left nothing, to `sandbox` and `env` in `directory`. The name of
    /// a container that stays is in `container`. Nothing runs in the Cell afterwards.
    ///
    /// # Errors
    /// There are no such files yet, or they cannot be copied.
    fn keep(&self, directory: &Path) -> Result<(), ExecError>;

    /// Keeps the files as they are now: what the agent gets.
    ///
    /// # Errors
    /// As [`CellExecutor::run`]. The Cell is stopped then.
    fn checkpoint(&self) -> Result<(), ExecError>;

    /// Compares what the agent left with the checkpoint. No command runs in this Cell afterwards.
    ///
    /// # Errors
    /// The difference is too long, cannot be made, or there is no checkpoint.
    fn difference(
        &self,
        rules: &DifferenceRules,
        deadline: Deadline,
    ) -> Result<AgentDifference, PatchError>;

    /// A started Cell for one grader: the files of the checkpoint with the agent's difference.
    ///
    /// # Errors
    /// There is no difference yet, or the executor failed.
    fn grader_cell(&self) -> Result<Box<dyn CellExecutor + '_>, ExecError>;
}

/// Runs the commands of one Cell over its files, which last until it is stopped.
///
/// What a command does is never an error: it exits, is killed or is out of time. An error means that nothing ran.
pub trait CellExecutor: Send + Sync + fmt::Debug {
    /// Makes the files of the Cell.
    ///
    /// # Errors
    /// The Cell was started before, its source cannot be copied, or the executor cannot be had here. Nothing is left.
    fn start(&self) -> Result<(), ExecError>;

    /// Runs one command to its end on this thread. All that it started is dead when this returns.
    ///
    /// # Errors
    /// Nothing has run.
    fn run(&self, request: &ExecRequest) -> Result<ExecResult, ExecError>;

    /// Writes a file with those permission bits, and the directories above it that are missing. `path` is relative to
    /// the sandbox, or absolute in the Cell as commands see it. A link of that name is replaced.
    ///
    /// # Errors
    /// A file that was there is unchanged.
    fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError>;

    /// Reads a file. Relative links are followed as long as they stay in the Cell.
    ///
    /// # Errors
    /// There is no regular file that its owner may read, or it is too large.
    fn get(&self, path: &str) -> Result<Vec<u8>, ExecError>;

    /// Removes what is at `path`: a file, a link itself, or a directory with everything in it. It does nothing if nothing
    /// is there.
    ///
    /// # Errors
    /// A link is on the way to `path`, or it is the sandbox or another directory of the Cell itself.
    fn remove(&self, path: &str) -> Result<(), ExecError>;

    /// Lists the directory at `path`, sorted by name. No link is followed, also none on the way. Names that are not UTF-8
    /// are left out, since no path here can have them.
    ///
    /// # Errors
    /// There is no directory that may be read, or it has more than [`LIST_ENTRIES_MAX`](super::LIST_ENTRIES_MAX) entries.
    fn list(&self, path: &str) -> Result<Vec<CellEntry>, ExecError>;

    /// Opens the sandbox for reading. It is read as long as no command runs, and closed before the Cell goes on.
    ///
    /// # Errors
    /// There is no directory, or this executor has its files elsewhere.
    fn open_sandbox(&self) -> Result<OwnedFd, ExecError> {
        Err(no_directory())
    }

    /// Puts what `fill` writes into an empty directory, for that owner, in the place of the sandbox. No command runs
    /// meanwhile.
    ///
    /// # Errors
    /// Those of `fill`, or the files cannot be replaced; or this executor has its files elsewhere. The sandbox may be
    /// incomplete then.
    fn replace_sandbox(
        &self,
        fill: &mut dyn FnMut(BorrowedFd<'_>, Owner) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        let _ = fill;
        Err(no_directory())
    }

    /// Removes the files, once the commands that still run have ended. It does nothing if they are removed already.
    fn stop(&self);

    /// What this executor is.
    ///
    /// # Errors
    /// The Cell is not started, or is stopped.
    fn describe(&self) -> Result<CellDescription, ExecError>;
}

/// So that a wrapper of executors can have a box of one.
impl<E: CellExecutor + ?Sized> CellExecutor for Box<E> {
    fn start(&self) -> Result<(), ExecError> {
        (**self).start()
    }

    fn run(&self, request: &ExecRequest) -> Result<ExecResult, ExecError> {
        (**self).run(request)
    }

    fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError> {
        (**self).put(path, content, mode)
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, ExecError> {
        (**self).get(path)
    }

    fn remove(&self, path: &str) -> Result<(), ExecError> {
        (**self).remove(path)
    }

    fn list(&self, path: &str) -> Result<Vec<CellEntry>, ExecError> {
        (**self).list(path)
    }

    fn stop(&self) {
        (**self).stop();
    }

    fn open_sandbox(&self) -> Result<OwnedFd, ExecError> {
        (**self).open_sandbox()
    }

    fn replace_sandbox(
        &self,
        fill: &mut dyn FnMut(BorrowedFd<'_>, Owner) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        (**self).replace_sandbox(fill)
    }

    fn describe(&self) -> Result<CellDescription, ExecError> {
        (**self).describe()
    }
}

fn no_directory() -> ExecError {
    let words = "this executor does not have the sandbox as a directory";
    ExecError::new(ExecCode::BackendUnavailable, words)
}
