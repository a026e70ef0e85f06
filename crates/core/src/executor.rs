//! The trait that backends implement, and its arguments and results.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::sync::retained::Retained;
use crate::values::owner::Owner;
use crate::{Enforced, NotStarted, OutputSink, RunReport, RunSpec, SetupFailure, Watch};

/// Runs programs in private workspaces.
///
/// Implementations are used from several threads at once.
pub trait Executor: Send + Sync + fmt::Debug {
    /// Returns the controls that this backend enforces on every run. May block while it tries them.
    ///
    /// # Errors
    /// The reason why the backend cannot run anything on this host.
    fn describe(&self) -> Result<Capabilities, Unavailable>;

    /// Finds the program `name` as a run would see it.
    ///
    /// A bare name is searched in [`COMMAND_PATH`] only; an absolute path is looked up as it is.
    /// Returns `None` for paths below `/workspace`, which does not exist yet, and for files that
    /// are hidden from programs.
    ///
    /// # Errors
    /// The lookup itself failed.
    fn find_program(&self, name: &str) -> Result<Option<FoundProgram>, SetupFailure>;

    /// Runs one program to its end on the calling thread: fills the workspace, runs the program
    /// and, once all its processes are dead, calls [`Task::collect`].
    ///
    /// Output goes to `sink` as it arrives, and to the report unless the sink is its only reader.
    ///
    /// # Errors
    /// The program never ran: the sandbox could not be created, or exec failed.
    fn execute(
        &self,
        task: Task<'_>,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted>;
}

/// The directories in which bare names are searched. The PATH of a request or of the server has no effect.
pub const COMMAND_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The controls that a backend enforces on every run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The enforced controls, each with its mechanism.
    pub enforced: Enforced,
    /// The missing controls, each as `name: reason`.
    pub not_enforced: Vec<String>,
}

/// Why a backend cannot run anything on this host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// A program's executable file, open.
#[derive(Debug)]
pub struct FoundProgram {
    /// The path where it was found: absolute, inside the sandbox.
    pub path: String,
    /// The same path with links resolved.
    pub target: String,
    /// The file, open for reading. It is the file that would be executed.
    pub file: OwnedFd,
}

/// One program to run, and the callbacks around it.
pub struct Task<'a> {
    /// The program. `fill` decides how its workspace is filled.
    pub spec: RunSpec,
    /// The size of the workspace's contents, which the sandbox adds to the disk limit.
    pub room: Room,
    /// Values, such as a permit, that are kept until all processes of the run are dead.
    pub retained: Retained,
    /// Fills an empty directory. All files must belong to the given owner.
    pub fill: &'a mut dyn FnMut(BorrowedFd<'_>, Owner) -> Result<(), SetupFailure>,
    /// Reads the workspace after all processes in the sandbox are dead.
    pub collect: &'a mut dyn FnMut(BorrowedFd<'_>),
}

/// The size of a workspace before anything runs in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes, each file rounded up to whole pages.
    pub bytes: u64,
    /// Files, directories and links.
    pub inodes: u64,
}

impl fmt::Debug for Task<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spec, room, .. } = self;
        out.debug_struct("Task").field("spec", spec).field("room", room).finish_non_exhaustive()
    }
}
