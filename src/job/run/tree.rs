//! A tree that a job works on in place of the workspace that its request names.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::BorrowedFd;

use cofferdam_tree::{
    Copied, Owner, SnapshotContents, SnapshotLimits, StopCheck, Survey, TreeLimits, WorkspaceError,
    copy_selected, measure_tree,
};

/// Nested directories.
const DEPTH_MAX: u64 = 1000;

/// A tree that a job works on: all of it is copied, and what the program left is taken.
#[derive(Clone, Copy)]
pub struct JobTree<'a> {
    /// What the program gets. Nothing changes it meanwhile.
    pub directory: BorrowedFd<'a>,
    /// Takes what the program left, once every process of the job is dead. It is not called if none has run.
    pub take: &'a dyn Fn(BorrowedFd<'_>),
}

impl JobTree<'_> {
    /// The space that a copy needs.
    pub(super) fn survey(
        self,
        limits: &SnapshotLimits,
        stop: StopCheck<'_>,
    ) -> Result<Survey, WorkspaceError> {
        measure_tree(self.directory, &tree_limits(limits), stop)
    }

    /// Copies all of it to the empty directory `target`, for `owner`. There is no digest.
    pub(super) fn copy(
        self,
        (target, owner): (BorrowedFd<'_>, Owner),
        limits: &SnapshotLimits,
        stop: StopCheck<'_>,
    ) -> Result<SnapshotContents, WorkspaceError> {
        let limits = tree_limits(limits);
        let copied =
            copy_selected(self.directory, target, owner, &limits, &|_: &[u8]| false, stop)?;
        let Copied { files, bytes, .. } = copied;
        Ok(SnapshotContents { files, bytes, excluded: BTreeMap::new(), digest: String::new() })
    }
}

impl fmt::Debug for JobTree<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("JobTree").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// As for a snapshot: so many files, and as many directories.
fn tree_limits(limits: &SnapshotLimits) -> TreeLimits {
    TreeLimits {
        entries_max: limits.files_max.saturating_mul(2),
        bytes_max: limits.bytes_max,
        depth_max: DEPTH_MAX,
    }
}
