//! A worktree of a local repository, for a Cell on the host. git of the host checks its files out, with no configuration
//! of the user's, no hook of the repository's and no way to another repository.
//!
//! Its directory in the repository is made here, as gitrepository-layout(5) has it, and appears there whole: while
//! `git worktree add` makes one, git commands in other worktrees can fail. Its name is ours and random, so that one whose
//! process was killed is known. Nothing else of the repository is written: no branch, no index, no configuration.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::group::run_in_group;
use super::head::{LocalHead, read_text};
use crate::case::source::error::{SourceError, SourceFault};
use crate::evaluation::repository::git_environment::isolated_environment;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::remove_tree;

/// The directory of a git directory in which each worktree has one.
const WORKTREES: &str = "worktrees";
/// The start of the names of ours. 32 digits follow.
const NAME_START: &str = "cofferdam-cell-";
/// The file of a worktree's directory with the path of the worktree's `.git`.
const LINK: &str = "gitdir";
const LINK_BYTES_MAX: u64 = 8192;
/// The file of a worktree that leads to its directory.
const GIT: &str = ".git";
/// A directory without a [`LINK`] that no live process is still making is older.
const MAKING_MAX: Duration = Duration::from_hours(1);
/// Entries that are searched for what a killed process left.
const SEARCHED_MAX: usize = 10_000;
/// How often the directory of all worktrees is made anew: the removal of the last worktree removes it.
const TRIES_MAX: u32 = 100;
/// A setting besides those of every git of ours: a repository may leave files out of its own work tree.
const SETTING: (&str, &str) = ("core.sparseCheckout", "false");
/// Objects that a repository has elsewhere are not fetched.
const VARIABLES: [(&str, &str); 2] = [("GIT_ALLOW_PROTOCOL", "none"), ("GIT_NO_LAZY_FETCH", "1")];

/// A worktree. When this is dropped, the repository does not know it any more; its files are the caller's.
#[derive(Debug)]
pub struct CellWorktree {
    git_directory: PathBuf,
    name: String,
}

impl CellWorktree {
    /// Makes the empty directory `place`, whose path is absolute, a worktree at `commit` of the repository at
    /// `repository`, on no branch. Worktrees of ours whose files are gone are removed before.
    ///
    /// # Errors
    /// There is no such repository, or git failed, or one of `ends` ended it. The repository has nothing of it, no
    /// process is left, and `place` is empty.
    pub fn add(
        repository: &Path,
        commit: &str,
        place: &Path,
        ends: (&CancelToken, Deadline),
    ) -> Result<Self, SourceError> {
        let added = LocalHead::of(repository).and_then(|LocalHead { git_directory, .. }| {
            remove_abandoned(&git_directory);
            remove_abandoned(&git_directory.join(WORKTREES));
            let name = format!("{NAME_START}{}", Uuid::new_v4().simple());
            let worktree = Self { git_directory, name };
            worktree.make(commit, place, ends).inspect_err(|_| clear(place))?;
            Ok(worktree)
        });
        added.map_err(|fault| fault.of("source"))
    }

    fn make(
        &self,
        commit: &str,
        place: &Path,
        ends: (&CancelToken, Deadline),
    ) -> Result<(), SourceFault> {
        let failed = |error: io::Error| SourceFault::of_step("make worktree", error);
        self.make_directory(commit, place).map_err(failed)?;
        let directory = self.directory();
        let mut git = Command::new("git");
        git.arg("--git-dir").arg(&directory).arg("--work-tree").arg(place);
        git.args(["reset", "--hard", "--quiet", "--no-recurse-submodules"]).current_dir(place);
        let (name, value) = SETTING;
        git.env_clear().envs(isolated_environment([(name.to_owned(), value)])).envs(VARIABLES);
        run_in_group(&mut git, ends)?;
        let text = [b"gitdir: ", directory.as_os_str().as_bytes(), b"\n"].concat();
        fs::write(place.join(GIT), text).map_err(failed)
    }

    /// Makes its directory in the repository: beside its place at first, so that it is whole when git finds it.
    fn make_directory(&self, commit: &str, place: &Path) -> io::Result<()> {
        let made = self.git_directory.join(&self.name);
        fs::create_dir(&made)?;
        let link = [place.join(GIT).as_os_str().as_bytes(), b"\n"].concat();
        fs::write(made.join(LINK), link)?;
        fs::write(made.join("commondir"), "../..\n")?;
        fs::write(made.join("HEAD"), format!("{commit}\n"))?;
        let mut moved = Err(io::ErrorKind::NotFound.into());
        for _ in 0..TRIES_MAX {
            match fs::create_dir(self.git_directory.join(WORKTREES)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => moved = fs::rename(&made, self.directory()),
            }
            if !moved.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                break;
            }
        }
        moved
    }

    fn directory(&self) -> PathBuf {
        self.git_directory.join(WORKTREES).join(&self.name)
    }
}

impl Drop for CellWorktree {
    fn drop(&mut self) {
        // git finds it whole or not at all.
        let _ = fs::rename(self.directory(), self.git_directory.join(&self.name));
        remove(&self.git_directory, OsStr::new(&self.name));
        // It fails unless this was the last one.
        let _ = fs::remove_dir(self.git_directory.join(WORKTREES));
    }
}

/// Removes those of `directory`'s entries that are directories of worktrees of ours whose files are gone: their process
/// was killed.
fn remove_abandoned(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.take(SEARCHED_MAX) {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_ours) && is_abandoned(&entry.path()) {
            remove(directory, &name);
        }
    }
}

fn is_ours(name: &str) -> bool {
    let digits = name.strip_prefix(NAME_START);
    digits.is_some_and(|digits| Uuid::try_parse(digits).is_ok())
}

fn is_abandoned(directory: &Path) -> bool {
    let link = read_text(&directory.join(LINK), LINK_BYTES_MAX).unwrap_or_default();
    match link.trim_end().strip_suffix("/.git") {
        Some(place) => {
            let found = fs::symlink_metadata(place);
            found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        }
        None => {
            let made = fs::symlink_metadata(directory).and_then(|metadata| metadata.modified());
            let age = made.ok().and_then(|made| SystemTime::now().duration_since(made).ok());
            age.is_some_and(|age| age > MAKING_MAX)
        }
    }
}

/// Removes what is in the directory `place`.
fn clear(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        remove(place, &entry.file_name());
    }
}

/// Removes the entry `name` of `directory`, if it is there.
fn remove(directory: &Path, name: &OsStr) {
    let opened = File::open(directory).map_err(|error| error.to_string());
    let removed = opened.and_then(|directory| {
        remove_tree(directory.as_fd(), name).map_err(|error| error.to_string())
    });
    match removed {
        Ok(removal) if removal.left == 0 => {}
        Ok(removal) => log::error!("{} entries of a worktree are left", removal.left),
        Err(error) => log::error!("a worktree is left: {error}"),
    }
}
