//! The files of workspaces.

use std::fmt::Debug;

use super::workspace::Workspace;
use crate::workspace::EngineError;
use crate::workspace::files::{CollectView, InputSpec, StagedDirectoryView};
use crate::workspace::helpers::{InputRecord, OutputManifest, OutputSpec};

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

/// How a directory is staged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageOptions {
    /// Whether no program can change it.
    pub read_only: bool,
    /// Whether a read-only directory may be a mount of one copy for all workspaces.
    pub allow_mount: bool,
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

    /// Puts a copy of the host's directory `src`, an absolute path below one of the engine's host roots, in
    /// the place of what is at `to`.
    ///
    /// # Errors
    /// `src` is not below a root, is not there or has a link on its way, or the workspace has no room.
    /// Nothing has changed then.
    fn stage_directory(
        &self,
        workspace: &Workspace,
        src: &str,
        to: &str,
        options: StageOptions,
    ) -> Result<StagedDirectoryView, EngineError>;

    /// Stages inputs, all or none, and records them in the workspace's metadata.
    ///
    /// # Errors
    /// The scheme of an input is not known, it is not there or not allowed, or the workspace has no room.
    fn stage_inputs(
        &self,
        workspace: &Workspace,
        specs: Vec<InputSpec>,
    ) -> Result<Vec<InputRecord>, EngineError>;

    /// Collects the files that `spec` asks for, by default 100 of 4 MiB and 64 MiB in all, and saves them as
    /// artifacts of the workspace's session if it says so. What was not read is in `omitted`.
    ///
    /// # Errors
    /// A pattern or the template is malformed, a file to save was cut, or the store has no room. Nothing is
    /// saved then.
    fn collect_outputs(
        &self,
        workspace: &Workspace,
        spec: &OutputSpec,
    ) -> Result<OutputManifest, EngineError>;
}
