//! The repository that agents see: one branch at the commit, its history, and the tags of that history.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{RenameFlags, renameat2};

use super::error::RepositoryError;
use super::git::{GitCall, GitSandbox, put_file};
use super::located::{LocatedCommit, OBJECTS_PATH};
use super::revision::packed_refs;
use crate::evaluation::trees::{PhaseTree, WORKSPACE};
use cofferdam_core::SetupFailure;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_tree::{StopCheck, TreeLimits, WorkspaceError, copy_tree_until, remove_tree_until};

/// The one branch.
pub const BRANCH: &str = "main";
const GIT: &str = ".git";
const GIT_PATH: &str = "/workspace/.git";
const WORKSPACE_PATH: &str = "/workspace";
/// A copy of `.git` that no sandbox sees.
const KEPT_GIT: &str = "kept-git";
/// The whole configuration of the repository.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
                      \tlogallrefupdates = true\n";

/// Makes the repository at the commit of `located` in the empty workspace.
///
/// # Errors
/// git failed: an object is missing or malformed, or there is no room.
pub fn check_out(git: &GitSandbox<'_>, located: &LocatedCommit) -> Result<(), RepositoryError> {
    let tree = git.tree();
    let commit = located.commit.as_str();
    make_git_directory(tree, commit)?;
    let pack = format!("{GIT_PATH}/objects/pack/pack");
    let args = vec!["pack-objects", "-q", "--revs", "--delta-base-offset", &pack];
    let mut wanted = format!("{commit}\n");
    if weakened::lacks(Wall::History) {
        wanted.extend(located.refs.tags().map(|(_, hash)| format!("{hash}\n")));
    }
    let stdin = wanted.into_bytes();
    let (alternate, binds) = (Some(OBJECTS_PATH), vec![located.bind()]);
    git.run(GitCall { args, git_dir: GIT_PATH, alternate, stdin, binds, ..GitCall::default() })?;
    if !located.is_checked() {
        let args = vec!["fsck", "--strict", "--no-dangling", "--no-progress", "--no-reflogs"];
        git.run(GitCall { args, git_dir: GIT_PATH, ..GitCall::default() })?;
    }
    let tags = tags_of_history(git, located)?;
    let tags = tags.iter().map(|(name, hash)| (name.as_str(), hash.as_str()));
    let refs = packed_refs(BRANCH, commit, tags);
    put_file(tree, &format!("{WORKSPACE}/{GIT}/packed-refs"), refs.as_bytes())?;
    fill_work_tree(git, &["read-tree", "--reset", "-u", "HEAD"])
}

/// Commits the files of the directory `files`, which hold no `.git`, as the only commit. Returns its hash.
///
/// # Errors
/// There is no room for them, git failed, or `stop` ended it.
pub fn commit_files(
    git: &GitSandbox<'_>,
    files: BorrowedFd<'_>,
    limits: &TreeLimits,
    stop: StopCheck<'_>,
) -> Result<String, RepositoryError> {
    let tree = git.tree();
    let workspace = tree.open_directory(WORKSPACE)?;
    copy_tree_until(files, workspace.as_fd(), tree.owner(), limits, stop)
        .map_err(|error| failed_copy(&error, limits))?;
    // None yet: the branch is made with the commit.
    make_git_directory(tree, "")?;
    fill_work_tree(git, &["add", "--all", "--force", "--", "."])?;
    let run = |args: &[&str], stdin: &str| {
        let call = GitCall {
            args: args.to_vec(),
            git_dir: GIT_PATH,
            work_tree: Some(WORKSPACE_PATH),
            stdin: stdin.as_bytes().to_vec(),
            ..GitCall::default()
        };
        git.run(call).map(|printed| String::from_utf8_lossy(&printed).trim().to_owned())
    };
    let written = run(&["write-tree"], "")?;
    let commit = run(&["commit-tree", "-m", "task", &written], "")?;
    let refs = packed_refs(BRANCH, &commit, std::iter::empty());
    put_file(tree, &format!("{WORKSPACE}/{GIT}/packed-refs"), refs.as_bytes())?;
    Ok(commit)
}

/// Keeps a copy of `.git` where no sandbox sees it.
///
/// # Errors
/// There is no room for it, or `stop` ended it.
pub fn keep_git(tree: &PhaseTree, stop: StopCheck<'_>) -> Result<(), RepositoryError> {
    tree.make_directory(KEPT_GIT)?;
    let from = tree.open_directory(&format!("{WORKSPACE}/{GIT}"))?;
    let to = tree.open_directory(KEPT_GIT)?;
    let limits = TreeLimits { bytes_max: u64::MAX, ..TreeLimits::default() };
    let copied = copy_tree_until(from.as_fd(), to.as_fd(), tree.owner(), &limits, stop);
    copied.map(drop).map_err(|error| failed_copy(&error, &limits))
}

/// Replaces whatever is at `.git` now by the copy that was kept.
///
/// # Errors
/// What is there cannot be removed, or `stop` ended it.
pub fn restore_git(tree: &PhaseTree, stop: StopCheck<'_>) -> Result<(), RepositoryError> {
    let failed = |reason: String| SetupFailure::from_words("replace .git", reason);
    let workspace = tree.open_directory(WORKSPACE)?;
    let removed = remove_tree_until(workspace.as_fd(), OsStr::new(GIT), stop);
    match removed {
        Ok(removal) if removal.left == 0 => {}
        Ok(_) => return Err(failed("a part cannot be removed".to_owned()).into()),
        Err(error) => return Err(failed(error.to_string()).into()),
    }
    let moved =
        renameat2(tree.root(), KEPT_GIT, workspace.as_fd(), GIT, RenameFlags::RENAME_NOREPLACE);
    moved.map_err(|errno: Errno| failed(errno.to_string()))?;
    Ok(())
}

fn make_git_directory(tree: &PhaseTree, commit: &str) -> Result<(), RepositoryError> {
    let place = format!("{WORKSPACE}/{GIT}");
    for directory in
        ["", "/objects", "/objects/info", "/objects/pack", "/refs", "/refs/heads", "/refs/tags"]
    {
        tree.make_directory(&format!("{place}{directory}"))?;
    }
    put_file(tree, &format!("{place}/HEAD"), format!("ref: refs/heads/{BRANCH}\n").as_bytes())?;
    put_file(tree, &format!("{place}/config"), CONFIG.as_bytes())?;
    if !commit.is_empty() {
        let refs = packed_refs(BRANCH, commit, std::iter::empty());
        put_file(tree, &format!("{place}/packed-refs"), refs.as_bytes())?;
    }
    Ok(())
}

/// The tags whose commits the new repository has, which are those of the branch's history.
fn tags_of_history(
    git: &GitSandbox<'_>,
    located: &LocatedCommit,
) -> Result<Vec<(String, String)>, RepositoryError> {
    let tags: Vec<(&str, &str)> = located.refs.tags().collect();
    if tags.is_empty() {
        return Ok(Vec::new());
    }
    let stdin: String = tags.iter().map(|(_, hash)| format!("{hash}\n")).collect();
    let args = vec!["cat-file", "--batch-check=%(objecttype)", "--buffer"];
    let call = GitCall { args, git_dir: GIT_PATH, stdin: stdin.into_bytes(), ..GitCall::default() };
    let printed = git.run(call)?;
    let printed = String::from_utf8_lossy(&printed);
    let own = printed.lines().zip(tags).filter(|(kind, _)| *kind == "commit");
    Ok(own.map(|(_, (name, hash))| (name.to_owned(), hash.to_owned())).collect())
}

fn fill_work_tree(git: &GitSandbox<'_>, args: &[&str]) -> Result<(), RepositoryError> {
    let work_tree = Some(WORKSPACE_PATH);
    let call = GitCall { args: args.to_vec(), git_dir: GIT_PATH, work_tree, ..GitCall::default() };
    git.run(call).map(drop)
}

fn failed_copy(error: &WorkspaceError, limits: &TreeLimits) -> RepositoryError {
    match error {
        WorkspaceError::System { source, .. } if *source == Errno::ENOSPC => {
            RepositoryError::TooLarge { bytes_max: limits.bytes_max }
        }
        other => SetupFailure::from_words("copy files", other.to_string()).into(),
    }
}
