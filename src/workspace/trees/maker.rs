//! The file systems of workspaces, as the registry uses them.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Weak};

use super::read_only::ReadOnlyTrees;
use crate::executor::{Capabilities, MountSource, MountedView};
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::request::{StorageKind, WorkspaceSettings};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::sync::run_control::RunControl;
use cofferdam_core::{
    EgressService, Limits, NotStarted, OutputSink, RunReport, RunSpec, Watch, WorkspacePath,
};
use cofferdam_sandbox::engine::{
    DiskSpace, DiskUsage, MountedTree, ProgramLabel, ReadOnlyTree, ReadOnlyTreeDraft, SharedProcess,
};
use cofferdam_tree::{Owner, StopCheck, TreeDigest};
use serde::Serialize;

/// What a file system is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeSettings {
    /// Where the files are.
    pub storage: StorageKind,
    /// The most bytes.
    pub bytes: u64,
    /// The most files and directories.
    pub inodes: u64,
}

impl TreeSettings {
    /// Those of a workspace.
    pub fn of(settings: &WorkspaceSettings) -> Self {
        let WorkspaceSettings { storage, disk_bytes, inodes, .. } = *settings;
        Self { storage, bytes: disk_bytes, inodes }
    }
}

/// How full a file system is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// All layers together.
    pub disk: DiskUsage,
    /// Bytes of frozen layers, which are charged by themselves.
    pub frozen_bytes: u64,
}

impl TreeUsage {
    /// The bytes that only this file system holds.
    pub fn own_bytes(&self) -> u64 {
        self.disk.used_bytes.saturating_sub(self.frozen_bytes)
    }

    /// The bytes that only this file system may come to hold.
    pub fn own_bytes_max(&self) -> u64 {
        self.disk.limit_bytes.saturating_sub(self.frozen_bytes)
    }
}

/// How forks get their files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ForkKind {
    /// They share them, as overlays.
    #[default]
    Overlay,
    /// They have a copy of them.
    Copy,
}

/// Makes file systems. Tests of the registry make some that are only counted.
pub trait TreeMaker: Debug + Send + Sync {
    /// Makes one, with the layout of a workspace.
    ///
    /// # Errors
    /// The host has no such storage, or a step of making it failed.
    fn make(&self, settings: TreeSettings) -> Result<Box<dyn WorkspaceTree>, EngineError>;

    /// How forks get their files, as the host was tried.
    fn fork_kind(&self) -> ForkKind;

    /// Whether read-only trees are mounted, as the host was tried.
    fn can_mount(&self) -> bool {
        false
    }

    /// What the host enforces in sandboxes.
    fn controls(&self) -> Capabilities;

    /// Checks that a workspace can have one sandbox for all its programs.
    ///
    /// # Errors
    /// The host cannot.
    fn check_shared(&self) -> Result<(), EngineError> {
        Err(no_shared())
    }
}

/// The file system of one workspace. Dropping it frees it.
pub trait WorkspaceTree: Debug + Send + Sync {
    /// Its root, with the directories `workspace` and `tmp`.
    fn root(&self) -> BorrowedFd<'_>;

    /// The owner of its files, as this host sees them.
    fn owner(&self) -> Owner;

    /// How full it is.
    ///
    /// # Errors
    /// The kernel does not tell.
    fn usage(&self) -> Result<TreeUsage, EngineError>;

    /// Whether others have its host id, since their files come from the same ancestor.
    fn shares_host_id(&self) -> bool;

    /// Freezes the files as they are, while nothing runs. What is written later goes into a new layer.
    ///
    /// # Errors
    /// A file is open for writing, or a step failed. The files are as before.
    fn freeze(&mut self, stop: StopCheck<'_>) -> Result<Arc<dyn FrozenTree>, EngineError>;

    /// Copies what was written since the files were last frozen, while nothing writes.
    ///
    /// # Errors
    /// It was stopped, or a step failed.
    fn copy(&self, stop: StopCheck<'_>) -> Result<Arc<dyn FrozenTree>, EngineError>;

    /// The layers that are frozen already.
    fn frozen(&self) -> Arc<dyn FrozenTree>;

    /// Whether it has frozen layers at all.
    fn is_layered(&self) -> bool;

    /// Whether it has frozen layers that nothing else needs.
    fn can_merge(&self) -> bool;

    /// Merges those layers, while nothing runs.
    ///
    /// # Errors
    /// It was stopped, or a step failed. The files are as before.
    fn merge(&mut self, stop: StopCheck<'_>) -> Result<(), EngineError>;

    /// The mounts for one sandbox, which shows the files at `path`. The sandbox has `own_bytes_max`
    /// bytes for what does not lie in the workspace.
    ///
    /// # Errors
    /// The kernel refused a step.
    fn view(&self, path: WorkspacePath, own_bytes_max: u64) -> Result<MountedView, EngineError>;

    /// As [`WorkspaceTree::view`], with the sandbox: a prepared one if there is one for `plain`.
    ///
    /// # Errors
    /// The kernel refused a step.
    fn sandbox(
        &self,
        path: WorkspacePath,
        own_bytes_max: u64,
        plain: Option<PlainProgram<'_>>,
    ) -> Result<Box<dyn TreeSandbox>, EngineError>;

    /// Executes the program ahead that is expected, where the host can.
    fn expect(&self, _expected: PlainProgram<'_>) {}

    /// Starts a sandbox over it that lasts until `watch` is cancelled, as
    /// [`WorkspaceTree::sandbox`] makes one. `limits` bound all its programs together, which
    /// reach what `egress` lets them. It holds `retained` until it is dead.
    ///
    /// # Errors
    /// A step of creating it failed.
    fn lasting_sandbox(
        &self,
        _path: WorkspacePath,
        _own_bytes_max: u64,
        _limits: Limits,
        _egress: Option<Arc<dyn EgressService>>,
        _retained: Retained,
        _watch: Watch,
    ) -> Result<Arc<dyn LastingSandbox>, EngineError> {
        Err(no_shared())
    }

    /// The read-only trees of this host; none where workspaces cannot show any.
    fn mountable(&self) -> Option<Arc<ReadOnlyTrees>> {
        None
    }

    /// A new read-only tree with room for `room`.
    ///
    /// # Errors
    /// A step failed.
    fn begin_tree(&self, _room: DiskSpace) -> Result<ReadOnlyTreeDraft, EngineError> {
        Err(no_trees())
    }

    /// Marks the new empty directory at `path` below the root: it shows `tree` once that is mounted.
    ///
    /// # Errors
    /// There is no room for the mark.
    fn mark(&self, _path: &Path, _tree: &ReadOnlyTree) -> Result<(), EngineError> {
        Err(no_trees())
    }

    /// Mounts a read-only tree for the directories that are marked with it, while nothing runs.
    ///
    /// # Errors
    /// A step failed. The files are as before.
    fn mount(&mut self, _mounted: MountedTree) -> Result<(), EngineError> {
        Err(no_trees())
    }

    /// The read-only trees that it shows.
    fn mounted(&self) -> Vec<MountedTree> {
        Vec::new()
    }

    /// Changes its limits to those of `settings`, or to what is used if that is more.
    ///
    /// # Errors
    /// The kernel refused it.
    fn limit(&mut self, _settings: TreeSettings) -> Result<(), EngineError> {
        Ok(())
    }

    /// Discards prepared sandboxes over it, while its source gives no mounts. Returns false if that takes
    /// long.
    fn discard_prepared(&self) -> bool;
}

/// A program for which a sandbox may have been prepared: one without a terminal and without input, or one
/// that may be executed ahead.
#[derive(Debug)]
pub struct PlainProgram<'a> {
    /// The program.
    pub spec: &'a RunSpec,
    /// Where further sandboxes get their mounts from.
    pub source: Weak<dyn MountSource>,
}

/// Reads a tree from its root.
pub type ReadCall<'a> = dyn FnMut(BorrowedFd<'_>) -> Result<(), EngineError> + 'a;

/// Files that no longer change.
pub trait FrozenTree: Debug + Send + Sync {
    /// A digest over all of them, which reads them all.
    ///
    /// # Errors
    /// It was stopped, or a step failed.
    fn digest(&self, stop: StopCheck<'_>) -> Result<TreeDigest, EngineError>;

    /// Calls `call` with their root, whose owners are those on disk.
    ///
    /// # Errors
    /// They cannot be shown, or that of `call`.
    fn read(&self, call: &mut ReadCall<'_>) -> Result<(), EngineError>;

    /// A file system with these files.
    ///
    /// # Errors
    /// It would have no room, or a step failed.
    fn fork(&self, settings: TreeSettings) -> Result<Box<dyn WorkspaceTree>, EngineError>;

    /// The read-only trees that they show.
    fn mounted(&self) -> Vec<MountedTree> {
        Vec::new()
    }

    /// Lets each layer that is not charged yet hold what `charge` returns for its bytes, until it is
    /// freed. The second argument is whether it is in memory.
    ///
    /// # Errors
    /// The first one of `charge`.
    fn charge_layers(
        &self,
        charge: &mut dyn FnMut(u64, bool) -> Result<Retained, EngineError>,
    ) -> Result<(), EngineError>;

    /// What the layers hold, by [`FrozenTree::charge_layers`].
    fn charges(&self) -> Retained;
}

/// A sandbox over the file system of a workspace, which runs one program.
pub trait TreeSandbox: Debug + Send {
    /// Runs the program of `spec` on this thread. `retained` is held until everything that it
    /// started is dead.
    ///
    /// # Errors
    /// The program did not start.
    fn run(
        self: Box<Self>,
        spec: RunSpec,
        retained: Retained,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted>;
}

/// A sandbox over the file system of a workspace that many programs share.
pub trait LastingSandbox: Debug + Send + Sync {
    /// Whether it lives.
    fn is_alive(&self) -> bool;

    /// Runs the program of `spec` in it on this thread. What the program leaves goes on.
    ///
    /// # Errors
    /// The program did not start.
    fn run(
        &self,
        spec: RunSpec,
        label: ProgramLabel,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted>;

    /// Kills what the ended program with that `control` left, and waits until it is dead.
    ///
    /// # Errors
    /// It is not dead in time.
    fn kill_left(&self, control: &RunControl) -> Result<(), EngineError>;

    /// The processes of its programs.
    fn processes(&self) -> Vec<SharedProcess>;

    /// Sends `signal` to the process `pid`, as it is numbered inside. False if no process has this pid.
    ///
    /// # Errors
    /// The kernel refused it.
    fn signal(&self, pid: i32, signal: i32) -> Result<bool, EngineError>;
}

fn no_trees() -> EngineError {
    EngineError::new(EngineCode::SandboxUnavailable, "this host cannot mount read-only trees")
}

fn no_shared() -> EngineError {
    let words = "this host cannot give a workspace one sandbox";
    EngineError::new(EngineCode::SandboxUnavailable, words)
}
