//! A source that is ready for every Cell of its Case.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag};
use nix::sys::stat::{SFlag, fstat};
use serde::Serialize;

use super::error::{SourceError, SourceFault};
use super::git::clone::{CloneParts, CommitClone};
use super::git::head::LocalHead;
use super::left_out::{SOURCE_LIMITS, is_left_out};
use super::plan::{CommitPlan, SourcePlan};
use super::staged::StagedCopy;
use super::stub::FoundFile;
use crate::case::file::Case;
use crate::evaluation::cache::is_raised;
use crate::evaluation::trees::FrozenFiles;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::digest::tagged_hash;
use cofferdam_tree::{Copied, Owner, StopCheck, copy_selected, digest_tree, open_scoped};

/// The version of what is hashed.
const DIGEST_TAG: &str = "case-source-1";
/// What clones keep beside their files. Its bytes differ from clone to clone; the commit stands for it.
const GIT: &CStr = c".git";
const MODE_BITS: u32 = 0o777;

/// What prepares sources on this host.
#[derive(Debug, Clone, Copy)]
pub struct SourceParts<'a> {
    /// A directory for copies, which others cannot read. It is not below a source.
    pub scratch: &'a Path,
    /// What clones repositories; needed where [`SourcePlan::clones`], and for fixtures.
    pub clones: Option<CloneParts<'a>>,
    /// Ends it.
    pub cancel: &'a CancelToken,
    /// When it has to be over.
    pub deadline: Deadline,
}

/// The source of a Case, or its fixtures.
#[derive(Debug)]
pub struct PreparedSource {
    files: SourceFiles,
    /// Whether copies lack what no copy has.
    is_copy: bool,
    commit: Option<String>,
    digest: String,
}

#[derive(Debug)]
enum SourceFiles {
    Nothing,
    Staged(StagedCopy),
    Cloned { clone: CommitClone, is_whole: bool },
    Worktree(PathBuf),
}

/// All that Cells see of a source.
#[derive(Debug, Serialize)]
struct SourceIdentity<'a> {
    tree: Option<&'a str>,
    commit: Option<&'a str>,
    has_git: bool,
}

impl PreparedSource {
    /// Prepares the source of a Case by its plan, for all its Cells.
    ///
    /// # Errors
    /// The directory cannot be read, or the repository cannot be cloned.
    pub fn prepare(plan: &SourcePlan, parts: &SourceParts<'_>) -> Result<Self, SourceError> {
        Self::by_plan(plan, parts).map_err(|fault| fault.of("source"))
    }

    /// Prepares the fixtures of `case`, if it has any: the directory of hidden files for its graders.
    ///
    /// # Errors
    /// The repository cannot be cloned, or has no such directory.
    pub fn prepare_fixtures(
        case: &Case,
        parts: &SourceParts<'_>,
    ) -> Result<Option<Self>, SourceError> {
        let Some(fixtures) = &case.fixtures else { return Ok(None) };
        let plan = CommitPlan::of_fixtures(fixtures, &case.id);
        let prepared = Self::by_plan(&SourcePlan::Clone(plan), parts);
        prepared.map(Some).map_err(|fault| fault.of("fixtures"))
    }

    fn by_plan(plan: &SourcePlan, parts: &SourceParts<'_>) -> Result<Self, SourceFault> {
        let bounds = (parts.cancel, parts.deadline);
        let clones = || {
            let missing = || SourceFault::NoSandbox("this host has no sandboxes".to_owned());
            parts.clones.as_ref().ok_or_else(missing)
        };
        let is_over = || is_raised(parts.cancel) || parts.deadline.passed();
        let stop = StopCheck(&is_over);
        let prepared = match plan {
            SourcePlan::Nothing => Self::of(SourceFiles::Nothing, None, false, stop),
            SourcePlan::Copy(path) => StagedCopy::make(path, parts.scratch, stop)
                .and_then(|copy| Self::of(SourceFiles::Staged(copy), None, true, stop)),
            SourcePlan::Worktree(path) => LocalHead::of(path).and_then(|head| {
                let files = SourceFiles::Worktree(path.clone());
                Self::of(files, Some(head.commit), false, stop)
            }),
            SourcePlan::LocalClone(path) => CommitClone::of_local(path, clones()?, bounds)
                .and_then(|clone| Self::cloned(clone, true, false, stop)),
            SourcePlan::Clone(plan) => CommitClone::of_commit(plan, clones()?, bounds)
                .and_then(|clone| Self::cloned(clone, plan.subdir.is_none(), plan.is_copy, stop)),
        };
        // What was stopped says so in its own words.
        match prepared {
            Err(_) if is_raised(parts.cancel) => Err(SourceFault::Cancelled),
            Err(SourceFault::Failed(_)) if parts.deadline.passed() => {
                Err(SourceFault::TimedOut(String::new()))
            }
            prepared => prepared,
        }
    }

    fn cloned(
        clone: CommitClone,
        is_whole: bool,
        is_copy: bool,
        stop: StopCheck<'_>,
    ) -> Result<Self, SourceFault> {
        let commit = Some(clone.base().base_commit.clone());
        Self::of(SourceFiles::Cloned { clone, is_whole }, commit, is_copy, stop)
    }

    fn of(
        files: SourceFiles,
        commit: Option<String>,
        is_copy: bool,
        stop: StopCheck<'_>,
    ) -> Result<Self, SourceFault> {
        let mut prepared = Self { files, is_copy, commit, digest: String::new() };
        let failed = |error: &dyn std::fmt::Display| SourceFault::of_step("digest", error);
        let tree = prepared.directory().map(|directory| digest_tree(directory, Some(GIT), stop));
        let tree = tree.transpose().map_err(|error| failed(&error))?.map(|tree| tree.hex());
        let identity = SourceIdentity {
            tree: tree.as_deref(),
            commit: prepared.commit.as_deref(),
            has_git: prepared.keeps_git(),
        };
        prepared.digest = tagged_hash(DIGEST_TAG, &identity).map_err(|error| failed(&error))?;
        Ok(prepared)
    }

    /// The files. `None` where the sandbox is empty, and where each Cell has a worktree.
    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        match &self.files {
            SourceFiles::Staged(copy) => Some(copy.directory()),
            SourceFiles::Cloned { clone, .. } => Some(clone.directory()),
            SourceFiles::Nothing | SourceFiles::Worktree(_) => None,
        }
    }

    /// The digest of all that Cells see.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The full hash of the commit, if it is one.
    pub fn commit(&self) -> Option<&str> {
        self.commit.as_deref()
    }

    /// Whether Cells have its `.git`.
    pub fn keeps_git(&self) -> bool {
        match &self.files {
            SourceFiles::Cloned { is_whole, .. } => *is_whole && !self.is_copy,
            SourceFiles::Worktree(_) => true,
            SourceFiles::Nothing | SourceFiles::Staged(_) => false,
        }
    }

    /// The frozen files whose directory `workspace` is all that Cells see, if there are any. They can be forked.
    pub fn frozen(&self) -> Option<&FrozenFiles> {
        match &self.files {
            SourceFiles::Cloned { clone, is_whole: true } if !self.is_copy => {
                Some(&clone.base().files)
            }
            _ => None,
        }
    }

    /// The repository of which each Cell has a worktree, see
    /// [`CellWorktree::add`](super::CellWorktree::add).
    pub fn worktree_of(&self) -> Option<&Path> {
        match &self.files {
            SourceFiles::Worktree(path) => Some(path),
            _ => None,
        }
    }

    /// Copies the files to `target`, an empty directory, for `owner`. It does nothing where there are none.
    ///
    /// # Errors
    /// As [`copy_selected`].
    pub fn copy_to(
        &self,
        target: BorrowedFd<'_>,
        owner: Owner,
        stop: StopCheck<'_>,
    ) -> Result<Copied, SourceError> {
        let Some(directory) = self.directory() else { return Ok(Copied::default()) };
        let is_left_out = |name: &[u8]| self.is_copy && is_left_out(name);
        copy_selected(directory, target, owner, &SOURCE_LIMITS, &is_left_out, stop)
            .map_err(|error| SourceFault::of_step("copy", error).of("source"))
    }

    /// The regular file at `path`, where it is behind links. `None` if there is none. A source of worktrees has its files
    /// in `cell`, the sandbox of a Cell on the host.
    pub fn find_file(&self, path: &Path, cell: Option<&Path>) -> Option<FoundFile> {
        let work_tree = cell.and_then(|path| File::open(path).ok());
        let directory = self.directory().or_else(|| work_tree.as_ref().map(AsFd::as_fd))?;
        let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC);
        let how = how.resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let found = open_scoped(directory, path, how).ok()?;
        let stat = fstat(&found).ok()?;
        let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
        let whole = path_of(&found)?;
        let path = whole.strip_prefix(path_of(&directory)?).ok()?.to_owned();
        let mode = stat.st_mode & MODE_BITS;
        (kind == SFlag::S_IFREG).then_some(FoundFile { path, mode })
    }
}

/// The path of an open file in its file system.
fn path_of(file: &impl AsFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())).ok()
}
