//! The seam to a backend: what every one of them takes and gives.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::sync::retained::Retained;
use crate::values::owner::Owner;
use crate::{Enforced, NotStarted, OutputSink, RunReport, RunSpec, SetupFailure, Watch};

/// Runs programs over private workspaces, somewhere.
pub trait Executor: Send + Sync + fmt::Debug {
    /// What it holds a run to, or why it can run nothing here. May take the time that trying takes.
    fn describe(&self) -> Result<Capabilities, Unavailable>;

    /// The program that `name` is where programs run: looked for in [`COMMAND_PATH`] alone where
    /// it is a bare name, and at its place where it is an absolute path. A path below
    /// `/workspace` is nothing that is there yet, and what programs are not shown is not found.
    fn find_program(&self, name: &str) -> Result<Option<FoundProgram>, SetupFailure>;

    /// Runs one program to its end on this thread: fills its workspace, runs it, and once
    /// nothing of it is alive, shows what it has left.
    fn execute(
        &self,
        task: Task<'_>,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted>;
}

/// Where bare names are looked for, whatever a request's or the server's own PATH says.
pub const COMMAND_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a backend holds every run to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The controls, each with its mechanism.
    pub enforced: Enforced,
    /// Controls that are missing, with the reasons.
    pub not_enforced: Vec<String>,
}

/// Why a backend can run nothing here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// A program's file, open.
#[derive(Debug)]
pub struct FoundProgram {
    /// Where it was found, absolute, in the box.
    pub path: String,
    /// Where it is, links resolved.
    pub target: String,
    /// The file, for reading; what is read here is what would be executed.
    pub file: OwnedFd,
}

/// One program to run, with what surrounds it.
pub struct Task<'a> {
    /// The program. How its workspace is filled is decided by `fill`.
    pub spec: RunSpec,
    /// What the workspace will hold, for which there has to be room beside the disk limit.
    pub room: Room,
    /// What stays taken until nothing of it is alive, however long that takes: a permit.
    pub retained: Retained,
    /// Fills an empty directory, for that owner.
    pub fill: &'a mut dyn FnMut(BorrowedFd<'_>, Owner) -> Result<(), SetupFailure>,
    /// Looks at the workspace when everything in the box is dead.
    pub collect: &'a mut dyn FnMut(BorrowedFd<'_>),
}

/// How much a workspace takes before anything runs in it.
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
