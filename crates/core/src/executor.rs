//! The trait that every backend implements, with its input and its answers.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use crate::sync::retained::Retained;
use crate::values::owner::Owner;
use crate::values::rel_path::RelPath;
use crate::{Enforced, NotStarted, OutputSink, RunReport, RunSpec, SetupFailure, Watch};

/// Runs programs over private workspaces.
pub trait Executor: Send + Sync + fmt::Debug {
    /// Returns the controls that apply to every run, or why nothing can run here. May probe the
    /// host, which takes time.
    fn describe(&self) -> Result<Capabilities, Unavailable>;

    /// Finds the program `name` where programs run: a bare name in [`COMMAND_PATH`] only, an
    /// absolute path at its place. Paths below `/workspace` and paths that programs cannot see
    /// are not found.
    fn find_program(&self, name: &str) -> Result<Option<FoundProgram>, SetupFailure>;

    /// Runs one program to its end on this thread.
    fn execute(
        &self,
        input: RunInput<'_>,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted>;
}

/// Where bare names are looked up, whatever PATH a request or the server has.
pub const COMMAND_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a backend enforces for every run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The controls, each with its mechanism.
    pub enforced: Enforced,
    /// Missing controls, with the reasons.
    pub not_enforced: Vec<String>,
}

/// Why a backend cannot run anything here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// A program's open file.
#[derive(Debug)]
pub struct FoundProgram {
    /// Its absolute path in the sandbox.
    pub path: String,
    /// The path with links resolved.
    pub target: String,
    /// The file, open for reading: the same file is executed.
    pub file: OwnedFd,
}

/// One program to run, with its workspace.
pub struct RunInput<'a> {
    /// The program. The backend sets how its workspace is filled.
    pub spec: RunSpec,
    /// What the workspace holds.
    pub workspace: WorkspaceInput<'a>,
    /// Held until every process of the run is dead, however long that takes: a permit.
    pub retained: Retained,
}

/// How the workspace of a run is filled.
pub enum WorkspaceInput<'a> {
    /// With a private copy of a directory. A backend may prepare such workspaces in advance.
    Template {
        /// The directory; an empty workspace without one.
        dir: Option<&'a Path>,
        /// Files written over the copy.
        files: &'a [(&'a RelPath, &'a [u8])],
    },
    /// By the caller, who also reads it after the run.
    Filled {
        /// Space for the files of `fill`, in addition to the disk limit.
        room: Room,
        /// Fills an empty directory with files of that owner.
        fill: &'a mut dyn FnMut(BorrowedFd<'_>, Owner) -> Result<(), SetupFailure>,
        /// Reads the workspace once every process of the run is dead.
        collect: &'a mut dyn FnMut(BorrowedFd<'_>),
    },
}

/// How much space a workspace needs before a program runs in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes, with each file rounded up to whole pages.
    pub bytes: u64,
    /// Files, directories and links.
    pub inodes: u64,
}

impl RunInput<'_> {
    /// The space that the caller's files need.
    pub fn room(&self) -> Room {
        match self.workspace {
            WorkspaceInput::Template { .. } => Room::default(),
            WorkspaceInput::Filled { room, .. } => room,
        }
    }

    /// Has the caller fill `workspace`, for a backend that takes no templates.
    ///
    /// # Errors
    /// The caller's failure, or that the input is a template.
    pub fn fill(&mut self, workspace: BorrowedFd<'_>, owner: Owner) -> Result<(), SetupFailure> {
        match &mut self.workspace {
            WorkspaceInput::Template { .. } => {
                let words = "this backend fills no workspace from a template";
                Err(SetupFailure::from_words("workspace", words))
            }
            WorkspaceInput::Filled { fill, .. } => fill(workspace, owner),
        }
    }

    /// Has the caller read `workspace` after the run.
    pub fn collect(&mut self, workspace: BorrowedFd<'_>) {
        if let WorkspaceInput::Filled { collect, .. } = &mut self.workspace {
            collect(workspace);
        }
    }
}

impl fmt::Debug for RunInput<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spec, workspace, .. } = self;
        out.debug_struct("RunInput")
            .field("spec", spec)
            .field("workspace", workspace)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WorkspaceInput<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template { dir, .. } => {
                out.debug_struct("Template").field("dir", dir).finish_non_exhaustive()
            }
            Self::Filled { room, .. } => {
                out.debug_struct("Filled").field("room", room).finish_non_exhaustive()
            }
        }
    }
}
