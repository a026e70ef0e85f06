//! Files that Cells begin with: frozen once, shared by all of them.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::unistd::{getegid, geteuid};

use crate::case::cell::error::{ExecCode, ExecError};
use crate::case::cell::plan::{CellExecutorKind, FILES_TIMEOUT, StepLimits};
use crate::case::cell::source::{SOURCE_LIMITS, copy_source};
use crate::evaluation::trees::{
    EvaluationTrees, FrozenFiles, PhaseTree, ShownDirectory, WORKSPACE,
};
use crate::executor::SandboxExecutor;
use cofferdam_core::SetupFailure;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_sandbox::engine::DiskSpace;
use cofferdam_tree::{Owner, StopCheck, copy_selected, remove_tree};

/// The directory of the environment, below the root and in sandboxes.
const ENV: ShownDirectory = ShownDirectory { name: "env", path: "/env" };
/// Files that the commands of a Cell may make.
const INODES_MAX: u64 = 1_000_000;
/// The least disk that a file system can have, bytes.
const DISK_BYTES_MIN: u64 = 64 << 10;

/// Makes the files of Cells whose commands run in sandboxes. Clones are the same one.
#[derive(Debug, Clone)]
pub struct CellTrees(EvaluationTrees);

/// Files that Cells begin with. Clones are the same ones.
#[derive(Debug, Clone)]
pub struct CellBase(pub(super) FrozenFiles);

impl CellTrees {
    /// Files on disk, in images in the directory `images`, or in memory without one.
    ///
    /// # Errors
    /// The host cannot have such files.
    pub fn open(executor: Arc<SandboxExecutor>, images: Option<&Path>) -> Result<Self, ExecError> {
        EvaluationTrees::open_showing(ENV, executor, images).map(Self).map_err(|failure| {
            let kind = CellExecutorKind::Sandboxed.word();
            ExecError::new(ExecCode::BackendUnavailable, format!("{kind}: {failure}"))
        })
    }

    /// What runs the commands.
    pub fn executor(&self) -> &Arc<SandboxExecutor> {
        self.0.executor()
    }

    /// Files that `fill` writes into the sandbox, for that owner.
    ///
    /// # Errors
    /// Those of `fill`, or the files cannot be made.
    pub fn base(
        &self,
        fill: impl FnOnce(BorrowedFd<'_>, Owner) -> Result<(), ExecError>,
    ) -> Result<CellBase, ExecError> {
        let room = DiskSpace { bytes: SOURCE_LIMITS.bytes_max, inodes: SOURCE_LIMITS.entries_max };
        let tree = self.0.create(room).map_err(|failure| failed("make files", &failure))?;
        let sandbox = tree.open_directory(WORKSPACE);
        let sandbox = sandbox.map_err(|failure| failed("open /workspace", &failure))?;
        fill(sandbox.as_fd(), tree.owner())?;
        drop(sandbox);
        freeze(tree)
    }

    /// Copies of the directories of a sandbox and an environment; in place of what `base` has, if it is there. The
    /// sandbox's entry `left_out` is no part of them.
    pub(in crate::case::cell) fn copied(
        &self,
        directories: [BorrowedFd<'_>; 2],
        left_out: Option<&str>,
        base: Option<&CellBase>,
    ) -> Result<CellBase, ExecError> {
        let room = DiskSpace { bytes: SOURCE_LIMITS.bytes_max, inodes: SOURCE_LIMITS.entries_max };
        let tree = match base {
            Some(base) => base.0.fork(room),
            None => self.0.create(room),
        };
        let tree = tree.map_err(|failure| failed("make files", &failure))?;
        for (from, name) in directories.into_iter().zip([WORKSPACE, ENV.name]) {
            let to = emptied(&tree, name)?;
            copy_whole(from, to.as_fd(), tree.owner())?;
            if let Some(entry) = left_out.filter(|_| name == WORKSPACE) {
                remove_whole(to.as_fd(), entry)?;
            }
        }
        freeze(tree)
    }

    /// An empty Cell's files, or those with a copy of `source`. Commands may use what `limits` say besides.
    pub(super) fn make(
        &self,
        source: Option<&Path>,
        limits: &StepLimits,
    ) -> Result<PhaseTree, ExecError> {
        let own = own_room(limits);
        let Some(source) = source else {
            return self.0.create(own).map_err(|failure| failed("make files", &failure));
        };
        let room = DiskSpace { bytes: SOURCE_LIMITS.bytes_max, inodes: SOURCE_LIMITS.entries_max };
        let tree = self.0.create(own.plus(room));
        let mut tree = tree.map_err(|failure| failed("make files", &failure))?;
        let sandbox = tree.open_directory(WORKSPACE);
        let sandbox = sandbox.map_err(|failure| failed("open /workspace", &failure))?;
        copy_source(source, sandbox.as_fd(), tree.owner())?;
        drop(sandbox);
        tree.limit(own).map_err(|failure| failed("limit files", &failure))?;
        Ok(tree)
    }
}

impl CellBase {
    /// The files of one Cell, which begins with these.
    pub(super) fn fork(&self, limits: &StepLimits) -> Result<PhaseTree, ExecError> {
        self.0.fork(own_room(limits)).map_err(|failure| failed("fork files", &failure))
    }

    /// Copies the sandbox and the environment to `sandbox` and `env` in `directory`, for the caller.
    pub(in crate::case::cell) fn copy_out(&self, directory: &Path) -> Result<(), ExecError> {
        self.show(WORKSPACE, |from| copy_to_host(from, &directory.join("sandbox")))?;
        self.show(ENV.name, |from| copy_to_host(from, &directory.join(ENV.name)))
    }

    /// Passes the directory `name` of these files, read-only, to `act`.
    pub(in crate::case::cell) fn show<T>(
        &self,
        name: &str,
        act: impl FnOnce(BorrowedFd<'_>) -> Result<T, ExecError>,
    ) -> Result<T, ExecError> {
        let view = self.0.view().map_err(|failure| failed("show files", &failure))?;
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let opened = openat2(view.tree(), name, how);
        let opened = opened.map_err(|errno| ExecError::failed("open files", errno))?;
        act(opened.as_fd())
    }

    /// These files.
    pub fn files(&self) -> &FrozenFiles {
        &self.0
    }
}

/// The sandbox of `tree`.
pub(super) fn open_sandbox(tree: &PhaseTree) -> Result<OwnedFd, ExecError> {
    tree.open_directory(WORKSPACE).map_err(|failure| failed("open /workspace", &failure))
}

/// Has `fill` write a new sandbox of `tree`. Commands may use what `limits` say besides.
pub(super) fn replace_sandbox(
    mut tree: PhaseTree,
    limits: &StepLimits,
    fill: &mut dyn FnMut(BorrowedFd<'_>, Owner) -> Result<(), ExecError>,
) -> Result<PhaseTree, ExecError> {
    let own = own_room(limits);
    let room = DiskSpace { bytes: SOURCE_LIMITS.bytes_max, inodes: SOURCE_LIMITS.entries_max };
    tree.limit(own.plus(room)).map_err(|failure| failed("limit files", &failure))?;
    let sandbox = emptied(&tree, WORKSPACE)?;
    fill(sandbox.as_fd(), tree.owner())?;
    drop(sandbox);
    tree.limit(own).map_err(|failure| failed("limit files", &failure))?;
    Ok(tree)
}

/// The directory `name` of `tree`, new and empty.
fn emptied(tree: &PhaseTree, name: &str) -> Result<OwnedFd, ExecError> {
    remove_whole(tree.root(), name)?;
    tree.make_directory(name).map_err(|failure| failed("make files", &failure))?;
    tree.open_directory(name).map_err(|failure| failed("open files", &failure))
}

/// Copies the directory `from` to the new directory `to` of the host, for the caller.
pub(in crate::case::cell) fn copy_to_host(
    from: BorrowedFd<'_>,
    to: &Path,
) -> Result<(), ExecError> {
    let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
    let made = DirBuilder::new().mode(0o700).create(to).and_then(|()| File::open(to));
    let made = made.map_err(|error| ExecError::failed("make directory", error))?;
    copy_whole(from, made.as_fd(), owner)
}

/// Copies the directory `from` with everything in it to the empty directory `to`, for `owner`.
pub(in crate::case::cell) fn copy_whole(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    owner: Owner,
) -> Result<(), ExecError> {
    let deadline = Deadline::after(FILES_TIMEOUT);
    let is_late = || deadline.passed();
    copy_selected(from, to, owner, &SOURCE_LIMITS, &|_| false, StopCheck(&is_late))
        .map(drop)
        .map_err(|error| ExecError::failed("copy files", error))
}

/// Removes the entry `name` of `directory` with everything in it.
fn remove_whole(directory: BorrowedFd<'_>, name: &str) -> Result<(), ExecError> {
    let removed = remove_tree(directory, OsStr::new(name));
    match removed.map_err(|error| ExecError::failed("clear files", error))?.left {
        0 => Ok(()),
        left => Err(ExecError::failed("clear files", format!("{left} entries are left"))),
    }
}

/// Freezes `tree`, in which nothing runs.
pub(super) fn freeze(tree: PhaseTree) -> Result<CellBase, ExecError> {
    let deadline = Deadline::after(FILES_TIMEOUT);
    let frozen = tree.freeze(StopCheck(&|| deadline.passed()));
    frozen.map(CellBase).map_err(|failure| failed("freeze files", &failure))
}

/// What the commands of a Cell may use on its disk.
fn own_room(limits: &StepLimits) -> DiskSpace {
    let bytes = match weakened::lacks(Wall::Quota) {
        true => SOURCE_LIMITS.bytes_max,
        false => limits.disk_bytes_max.max(DISK_BYTES_MIN),
    };
    DiskSpace { bytes, inodes: INODES_MAX }
}

fn failed(step: &'static str, failure: &SetupFailure) -> ExecError {
    ExecError::failed(step, failure)
}
