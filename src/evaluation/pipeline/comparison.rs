//! The comparison of what the agent left with the base, and the files that tests get.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::cache::is_raised;
use crate::evaluation::patch::entry::form_of;
use crate::evaluation::patch::{
    ComparedTrees, GitPhase, PatchError, RestoreRules, Restored, TreeChanges, TreeWriter,
    WrittenPatch, apply_changes, compare, ignored_paths, read_beneath, withhold, write_patch,
};
use crate::evaluation::result::OmittedPath;
use crate::evaluation::trees::{FrozenFiles, PhaseTree, WORKSPACE};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{SetupFailure, Watch, WorkspacePath};
use cofferdam_sandbox::engine::{DiskSpace, FrozenView};
use cofferdam_tree::StopCheck;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

/// How long the comparison may take.
const COMPARISON_TIME: Duration = Duration::from_mins(1);
/// The longest file of which single settings are restored, bytes.
const SETTINGS_BYTES_MAX: u64 = 4 << 20;
const BYTES_PER_INODE: u64 = 4096;

/// What came of the agent's work.
#[derive(Debug)]
pub struct ComparedWork {
    /// The patch.
    pub patch: WrittenPatch,
    /// What it cannot have.
    pub omitted: Vec<OmittedPath>,
    /// What tests get as the base has it.
    pub withheld: Vec<String>,
    /// What tests get.
    pub graded: FrozenFiles,
}

/// Compares what an agent left with its base.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// What each sandbox with git may use.
    pub bounds: PhaseBounds,
    /// Bytes that may be written besides the base.
    pub disk_bytes_max: u64,
    /// The longest patch, bytes.
    pub patch_bytes_max: u64,
    /// Where sandboxes see the repository.
    pub place: &'a WorkspacePath,
    /// What the agent got.
    pub base: &'a FrozenFiles,
    /// Ends it.
    pub watch: &'a Watch,
    /// When it has to be over. It takes a minute at most.
    pub deadline: Deadline,
}

impl Comparison<'_> {
    /// Compares `left`, the agent's tree, with the base, but for what `rules` restore. `add` writes what tests get
    /// besides.
    ///
    /// # Errors
    /// The patch is too long or cannot be made, or a sandbox failed.
    pub fn run(
        &self,
        left: &FrozenFiles,
        rules: &RestoreRules,
        add: impl Fn(&TreeWriter<'_>) -> Result<(), SetupFailure>,
    ) -> Result<ComparedWork, PatchError> {
        let deadline = Deadline::after(COMPARISON_TIME.min(self.deadline.remaining()));
        let is_over = || is_raised(&self.watch.cancel) || self.deadline.passed();
        let stop = StopCheck(&is_over);
        let views = Views::open(self.base, left)?;
        let mut changes = compare(&views.trees, deadline, stop)?;
        let scratch = self.fork()?;
        let git = GitPhase {
            tree: &scratch,
            place: self.place,
            bounds: self.bounds,
            watch: self.watch,
            deadline,
        };
        let mut ignored = ignored_paths(&git, &asked(&changes))?;
        if !is_repository(&views.trees)? {
            // All that the base has counts as tracked.
            ignored.retain(|path| is_new(&changes, path));
        }
        changes.files.retain(|path, change| change.before.is_some() || !ignored.contains(path));
        let patch = write_patch(&git, &views.trees, &changes, self.patch_bytes_max)?;
        let restored = restored(&views.trees, &changes, rules, &ignored, stop)?;
        let graded = self.graded((&views.trees, left), &changes, &restored, stop, add)?;
        let withheld = restored.names();
        Ok(ComparedWork { patch, omitted: changes.omitted, withheld, graded })
    }

    /// The files that tests get: the base, the agent's changes, and what is added.
    fn graded(
        &self,
        (trees, left): (&ComparedTrees, &FrozenFiles),
        changes: &TreeChanges,
        restored: &Restored,
        stop: StopCheck<'_>,
        add: impl Fn(&TreeWriter<'_>) -> Result<(), SetupFailure>,
    ) -> Result<FrozenFiles, SetupFailure> {
        let tree = match weakened::lacks(Wall::Compared) {
            true => left.fork(room(self.disk_bytes_max))?,
            false => self.fork()?,
        };
        let repository = tree.open_directory(WORKSPACE)?;
        let writer = TreeWriter::new(repository.as_fd(), tree.owner(), stop);
        if weakened::lacks(Wall::Replaced) {
            add(&writer)?;
            apply_changes(&writer, trees, changes, restored)?;
        } else {
            apply_changes(&writer, trees, changes, restored)?;
            add(&writer)?;
        }
        drop(repository);
        tree.freeze(stop)
    }

    fn fork(&self) -> Result<PhaseTree, SetupFailure> {
        self.base.fork(room(self.disk_bytes_max))
    }
}

fn restored(
    trees: &ComparedTrees,
    changes: &TreeChanges,
    rules: &RestoreRules,
    ignored: &BTreeSet<Vec<u8>>,
    stop: StopCheck<'_>,
) -> Result<Restored, PatchError> {
    if weakened::lacks(Wall::Restored) {
        return Ok(Restored::default());
    }
    let withheld = withhold(changes, rules, ignored, stop, |path| {
        let read = |root: &OwnedFd| read_beneath(root.as_fd(), path, SETTINGS_BYTES_MAX);
        (read(&trees.base), read(&trees.left))
    });
    withheld.ok_or(PatchError::Cancelled)
}

fn is_new(changes: &TreeChanges, path: &[u8]) -> bool {
    changes.files.get(path).is_some_and(|change| change.before.is_none())
}

fn is_repository(trees: &ComparedTrees) -> Result<bool, PatchError> {
    let failed = |errno| SetupFailure::from_errno("stat .git", errno as i32);
    Ok(form_of(trees.base.as_fd(), b".git").map_err(failed)?.is_some())
}

/// Room for that many bytes, in files of a usual size.
pub fn room(bytes: u64) -> DiskSpace {
    DiskSpace { bytes, inodes: (bytes / BYTES_PER_INODE).max(1024) }
}

/// The paths that git is asked about: not those below a link of the base, which git refuses.
fn asked(changes: &TreeChanges) -> Vec<&[u8]> {
    let is_link = |path: &[u8]| changes.replaces_link(path);
    changes.files.keys().map(Vec::as_slice).filter(|path| !is_link(path)).collect()
}

/// The trees, and the views that show them.
struct Views {
    trees: ComparedTrees,
    _shown: Vec<FrozenView>,
}

impl Views {
    fn open(base: &FrozenFiles, left: &FrozenFiles) -> Result<Self, SetupFailure> {
        let (base_view, left_view, above) = (base.view()?, left.view()?, left.view_above(base)?);
        let repository = |view: &FrozenView| {
            let how = OpenHow::new()
                .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
                .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
            openat2(view.tree(), WORKSPACE, how)
        };
        let failed = |errno| SetupFailure::from_errno("open repository", errno as i32);
        let written = match above.as_ref().map(repository) {
            None | Some(Err(Errno::ENOENT)) => None,
            Some(opened) => Some(opened.map_err(failed)?),
        };
        let trees = ComparedTrees {
            base: repository(&base_view).map_err(failed)?,
            left: repository(&left_view).map_err(failed)?,
            written,
        };
        Ok(Self {
            trees,
            _shown: [Some(base_view), Some(left_view), above].into_iter().flatten().collect(),
        })
    }
}
