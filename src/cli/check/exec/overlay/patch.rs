//! Changes of a command as a patch that `git apply` takes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::changes::DirectoryChanges;
use super::directories::TriedDirectory;
use super::listing::printed;
use super::states::{NodeKind, NodeState};
use crate::cli::failure::Failure;
use crate::evaluation::patch::entry::FileForm;
use crate::evaluation::patch::{ComparedPart, FileChange, PatchError, git_spec, write_patch_by};
use crate::executor::{Executor, RunInput, SandboxExecutor, WorkspaceInput};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{Limits, Outcome, RunReport, RunSpec, SetupFailure, Watch};
use cofferdam_sandbox::engine::OverlaidDirectory;

/// The longest patch, which is held in memory.
const PATCH_BYTES_MAX: u64 = 256 << 20;
/// What git may use, which holds both sides of the changed files.
const GIT_WAIT: Duration = Duration::from_secs(120);
const GIT_BYTES_MAX: u64 = 2 << 30;
const ANY_EXECUTE: u32 = 0o111;

/// Writes the changes of all `parts` to `out`; returns what is to be said of those that no patch has.
pub fn write_patch(
    executor: &SandboxExecutor,
    parts: &[(&TriedDirectory, &OverlaidDirectory, &DirectoryChanges)],
    watch: &Watch,
    mut out: File,
) -> Result<Vec<String>, Failure> {
    let several = parts.len() > 1;
    let mut said = Vec::new();
    let all: Vec<_> = parts
        .iter()
        .map(|(directory, _, changes)| files_of(directory, changes, several, &mut said))
        .collect();
    let compared: Vec<_> = parts
        .iter()
        .zip(&all)
        .map(|((directory, overlaid, _), files)| {
            let path = directory.path().as_os_str().as_bytes();
            let prefix = if several { path.strip_prefix(b"/").unwrap_or(path) } else { b"" };
            ComparedPart {
                base: overlaid.base(),
                left: overlaid.merged(),
                prefix: prefix.to_vec(),
                files,
            }
        })
        .collect();
    let run = |script: &str, stdin, stdout_bytes_max| {
        run_git(executor, git_spec(script, stdin, stdout_bytes_max), watch)
    };
    let patch = write_patch_by(run, &compared, PATCH_BYTES_MAX).map_err(|error| match error {
        PatchError::Sandbox(failure) => failure,
        PatchError::TooLarge { bytes_max } => {
            SetupFailure::from_words("patch", format!("it is longer than {bytes_max} bytes"))
        }
        other => SetupFailure::from_words("patch", other.to_string()),
    })?;
    out.write_all(&patch.bytes).map_err(|source| Failure::Write { what: "the patch", source })?;
    Ok(said)
}

/// Runs git in a sandbox that shows nothing of the directories.
fn run_git(
    executor: &SandboxExecutor,
    spec: RunSpec,
    watch: &Watch,
) -> Result<RunReport, PatchError> {
    let limits = Limits {
        memory_bytes_max: GIT_BYTES_MAX,
        disk_bytes_max: GIT_BYTES_MAX,
        file_bytes_max: GIT_BYTES_MAX,
        ..Limits::default().with_wall(GIT_WAIT)
    };
    let workspace = WorkspaceInput::Template { dir: None, files: &[] };
    let retained = Retained::default();
    let input = RunInput { spec: RunSpec { limits, ..spec }, workspace, retained };
    let report = executor.execute(input, &Watch::of(watch.cancel.clone()), None)?;
    if report.outcome == Outcome::Cancelled { Err(PatchError::Cancelled) } else { Ok(report) }
}

fn files_of(
    directory: &TriedDirectory,
    changes: &DirectoryChanges,
    several: bool,
    said: &mut Vec<String>,
) -> BTreeMap<Vec<u8>, FileChange> {
    let mut files = BTreeMap::new();
    for (path, difference) in &changes.paths {
        let (before, after) = (form_of(difference.before), form_of(difference.after));
        let is_special = |state: Option<NodeState>, form: Option<FileForm>| {
            form.is_none() && state.is_some_and(|state| state.kind != NodeKind::Directory)
        };
        let reason = if path.split(|byte| *byte == b'/').any(is_git) {
            Some("git applies no change of .git")
        } else if is_special(difference.before, before) || is_special(difference.after, after) {
            Some("neither a file nor a link")
        } else {
            None
        };
        if let Some(reason) = reason {
            let path = printed(&directory.shown(path, several));
            said.push(format!("not in the patch: {path}: {reason}"));
        }
        let change = FileChange { before, after };
        if reason.is_none() && (before.is_some() || after.is_some()) {
            files.insert(path.clone(), change);
        }
    }
    files
}

fn is_git(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git")
}

/// `None` for what a patch cannot have.
fn form_of(state: Option<NodeState>) -> Option<FileForm> {
    let state = state?;
    match state.kind {
        NodeKind::Link => Some(FileForm::Link),
        NodeKind::File if state.mode & ANY_EXECUTE != 0 => Some(FileForm::Executable),
        NodeKind::File => Some(FileForm::Plain),
        NodeKind::Directory | NodeKind::Fifo | NodeKind::Socket | NodeKind::Device => None,
    }
}
