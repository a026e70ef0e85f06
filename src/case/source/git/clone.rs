//! Clones: git of the root file system, in sandboxes, over the mirrors and bases of evaluations.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::head::LocalHead;
use crate::case::source::error::SourceFault;
use crate::case::source::plan::CommitPlan;
use crate::egress::EgressLog;
use crate::evaluation::repository::{
    Base, BaseRequest, BaseSource, Repositories, RepositoryRoots, RepositorySource, Revision,
};
use crate::evaluation::task::TaskBounds;
use crate::evaluation::trees::{EvaluationRoot, WORKSPACE};
use cofferdam_core::WorkspacePath;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_sandbox::engine::FrozenView;

/// What clones repositories.
#[derive(Debug, Clone, Copy)]
pub struct CloneParts<'a> {
    /// The mirrors and bases. Their `clone_network` is that of `CASES_CLONE_NETWORK`.
    pub repositories: &'a Repositories,
    /// The root file system whose git is used.
    pub root: &'a EvaluationRoot,
    /// Whose cache is used: the name of a token.
    pub owner: &'a str,
    /// Where `repo` may be a path: `/` for the command line.
    pub local: &'a RepositoryRoots,
    /// Records what git reaches.
    pub egress: &'a Arc<EgressLog>,
}

/// A repository at a commit, with the history up to it and nothing else.
#[derive(Debug)]
pub struct CommitClone {
    base: Arc<Base>,
    // Dropped before what it shows.
    directory: OwnedFd,
    _view: FrozenView,
}

impl CommitClone {
    /// Clones the local repository at `path`, at its HEAD.
    pub fn of_local(
        path: &Path,
        parts: &CloneParts<'_>,
        (cancel, deadline): (&CancelToken, Deadline),
    ) -> Result<Self, SourceFault> {
        let LocalHead { git_directory, commit } = LocalHead::of(path)?;
        let repository = RepositorySource::Directory { git_directory };
        let source = BaseSource::Commit { repository, revision: Revision::Full(commit) };
        Self::of_source(&source, None, parts, (cancel, deadline))
    }

    /// Clones the commit of `plan`.
    pub fn of_commit(
        plan: &CommitPlan,
        parts: &CloneParts<'_>,
        (cancel, deadline): (&CancelToken, Deadline),
    ) -> Result<Self, SourceFault> {
        let CommitPlan { repository, commit, subdir, .. } = plan;
        let repository = RepositorySource::parse(repository, parts.local)
            .map_err(|_| SourceFault::Unreachable(format!("'{repository}' may not be used")))?;
        let not_found = || SourceFault::CommitNotFound { commit: commit.clone() };
        let revision = Revision::parse(commit).ok_or_else(not_found)?;
        let source = BaseSource::Commit { repository, revision };
        Self::of_source(&source, subdir.as_deref(), parts, (cancel, deadline))
    }

    fn of_source(
        source: &BaseSource,
        subdir: Option<&Path>,
        parts: &CloneParts<'_>,
        (cancel, deadline): (&CancelToken, Deadline),
    ) -> Result<Self, SourceFault> {
        let request = BaseRequest {
            owner: parts.owner,
            root: parts.root,
            source,
            install: &[],
            goes_on: false,
            env: &BTreeMap::new(),
            asked: TaskBounds::default(),
            place: &WorkspacePath::default(),
            fresh: false,
            cancel,
            deadline,
            egress: parts.egress,
            output: None,
        };
        let found = parts.repositories.find_commit(&request)?;
        let base = parts.repositories.base(&request, &found)?.base;
        let view = base.files.view().map_err(|failure| SourceFault::of_step("clone", failure))?;
        let directory = open_beneath(view.tree(), subdir)?;
        Ok(Self { base, directory, _view: view })
    }

    /// The base: its directory [`WORKSPACE`] is the repository.
    pub fn base(&self) -> &Arc<Base> {
        &self.base
    }

    /// The repository, or the directory of it that is used. It is read-only.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Opens the repository below `root`, or its directory `subdir`, without following links.
fn open_beneath(root: BorrowedFd<'_>, subdir: Option<&Path>) -> Result<OwnedFd, SourceFault> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let path = subdir.map_or_else(|| WORKSPACE.into(), |subdir| Path::new(WORKSPACE).join(subdir));
    openat2(root, &path, how).map_err(|errno| match subdir {
        Some(subdir) => SourceFault::NoDirectory { subdir: subdir.display().to_string() },
        None => SourceFault::of_step("open clone", errno.desc()),
    })
}
