//! The directory a job names, opened once: what the policy judges is what is copied.

use std::path::Path;

use nix::errno::Errno;

use crate::policy::WorkspaceFacts;
use cofferdam_tree::{SourceDir, WorkspaceError};

/// The directories of a store that may be file systems of their own.
const STORE_PARTS: [&str; 3] = ["runs", "quarantine", "owners"];

/// An open workspace, and the store that no copy of it may show.
#[derive(Debug)]
pub struct OpenedWorkspace {
    source: SourceDir,
    store: Vec<SourceDir>,
    is_in_store: bool,
}

impl OpenedWorkspace {
    /// Opens the workspace `path`, with the store in `store_dir`.
    pub fn open(path: &Path, store_dir: &Path) -> Result<Self, WorkspaceError> {
        let source = SourceDir::open(path)?;
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

    /// What the policy is told of it.
    pub fn facts(&self) -> WorkspaceFacts<'_> {
        let resolved = Some(self.source.resolved());
        WorkspaceFacts { resolved, is_in_store: self.is_in_store }
    }

    /// What is copied.
    pub fn source(&self) -> &SourceDir {
        &self.source
    }

    /// What is left out of every copy: the records of other jobs.
    pub fn left_out(&self) -> &[SourceDir] {
        &self.store
    }
}
