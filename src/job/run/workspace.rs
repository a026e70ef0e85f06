//! The directory of a job, opened once: the policy judges the same directory that is copied.

use std::os::fd::BorrowedFd;
use std::path::Path;

use nix::errno::Errno;

use crate::policy::WorkspaceFacts;
use cofferdam_tree::{SourceDir, WorkspaceError};

/// The directories of a store that may be separate file systems.
const STORE_PARTS: [&str; 3] = ["runs", "quarantine", "owners"];

/// An open workspace, and the store, which no copy may contain.
#[derive(Debug)]
pub struct OpenedWorkspace {
    source: SourceDir,
    store: Vec<SourceDir>,
    is_in_store: bool,
}

impl OpenedWorkspace {
    /// Opens the workspace `path`, with the store in `store_dir`.
    pub fn open(path: &Path, store_dir: &Path) -> Result<Self, WorkspaceError> {
        Self::of(SourceDir::open(path)?, store_dir)
    }

    /// The same for a directory that is open, and that errors call `path`.
    pub fn of_open(
        directory: BorrowedFd<'_>,
        path: &Path,
        store_dir: &Path,
    ) -> Result<Self, WorkspaceError> {
        let directory = directory.try_clone_to_owned().map_err(|error| WorkspaceError::System {
            operation: "open",
            path: path.to_owned(),
            source: Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)),
        })?;
        Self::of(SourceDir::of_open(directory, path)?, store_dir)
    }

    fn of(source: SourceDir, store_dir: &Path) -> Result<Self, WorkspaceError> {
        let mut store = vec![SourceDir::open(store_dir)?];
        for part in STORE_PARTS {
            match SourceDir::open(&store_dir.join(part)) {
                Err(WorkspaceError::System { source: Errno::ENOENT, .. }) => {}
                opened => store.push(opened?),
            }
        }
        let is_in_store = source.lies_in(&store)?;
        Ok(Self { source, store, is_in_store })
    }

    /// What the policy learns about the workspace.
    pub fn facts(&self) -> WorkspaceFacts<'_> {
        let resolved = Some(self.source.resolved());
        WorkspaceFacts { resolved, is_in_store: self.is_in_store }
    }

    /// The directory to copy.
    pub fn source(&self) -> &SourceDir {
        &self.source
    }

    /// Left out of every copy: the records of other jobs.
    pub fn excluded(&self) -> &[SourceDir] {
        &self.store
    }
}
