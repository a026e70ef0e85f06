//! The files of workspaces.

use std::fmt::Debug;

use super::workspace::Workspace;
use crate::workspace::EngineError;
use crate::workspace::files::CollectView;

/// A file to put into a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PutFile {
    /// Its place: relative to the workspace, or absolute below it or `/tmp`.
    pub path: String,
    /// Its contents.
    pub content: Vec<u8>,
    /// Its permission bits; 0 is 0644.
    pub mode: u32,
}

/// Puts files into workspaces and collects those that programs have made.
pub trait WorkspaceFs: Debug + Send + Sync {
    /// Writes files, with the directories above them. All paths are judged before the first is written.
    ///
    /// # Errors
    /// A path leaves the workspace or has a link on its way, a mode has more than permission bits, or the
    /// workspace has no room.
    fn put_files(&self, workspace: &Workspace, files: Vec<PutFile>) -> Result<(), EngineError>;

    /// The files that match globs of the workspace, with the first 4 MiB of each: up to 1,000 files and
    /// 64 MiB. `limits_hit` tells whether one of these limits left out anything. Links that leave the
    /// workspace are not followed.
    ///
    /// # Errors
    /// A pattern is malformed or leaves the workspace.
    fn collect(
        &self,
        workspace: &Workspace,
        patterns: &[String],
    ) -> Result<CollectView, EngineError>;
}
