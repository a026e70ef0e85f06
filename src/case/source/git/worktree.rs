//! A worktree of a local repository, for a Cell on the host. git of the host makes it, with no configuration of the
//! user's and no hook of the repository's.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::head::LocalHead;
use crate::case::source::error::SourceFault;
use crate::evaluation::repository::git_environment::isolated_environment;
use cofferdam_core::values::deadline::Deadline;

/// How long the removal of a worktree may take.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of what git says that an error quotes.
const SAID_BYTES_MAX: usize = 4096;
const BUFFER_BYTES: usize = 4096;

/// A worktree. It is removed when this is dropped.
#[derive(Debug)]
pub struct CellWorktree {
    repository: PathBuf,
    place: PathBuf,
}

impl CellWorktree {
    /// Makes a worktree at HEAD of the repository at `repository`, on no branch, in `place`, which is absent or an
    /// empty directory.
    ///
    /// # Errors
    /// There is no such repository, or git failed. Nothing is left.
    pub fn add(repository: &Path, place: &Path, deadline: Deadline) -> Result<Self, SourceFault> {
        let LocalHead { git_directory, commit } = LocalHead::of(repository)?;
        let words = ["add", "--quiet", "--detach", "--force"].map(OsStr::new);
        let args = [&words[..], &[place.as_os_str(), OsStr::new(&commit)]].concat();
        if let Err(fault) = git_worktree(&git_directory, &args, deadline) {
            // Where git was killed there may be a part; else there is nothing to remove.
            let _ = remove(&git_directory, place);
            return Err(fault);
        }
        Ok(Self { repository: git_directory, place: place.to_owned() })
    }
}

impl Drop for CellWorktree {
    fn drop(&mut self) {
        if let Err(fault) = remove(&self.repository, &self.place) {
            log::error!("a worktree is left: {fault}");
        }
    }
}

fn remove(repository: &Path, place: &Path) -> Result<(), SourceFault> {
    let words = ["remove", "--force", "--force"].map(OsStr::new);
    let args = [&words[..], &[place.as_os_str()]].concat();
    git_worktree(repository, &args, Deadline::after(REMOVE_TIMEOUT))
}

/// Runs `git worktree` with `args`.
fn git_worktree(repository: &Path, args: &[&OsStr], deadline: Deadline) -> Result<(), SourceFault> {
    let failed = |error: io::Error| SourceFault::of_step("git worktree", error);
    let mut child = Command::new("git")
        .arg("--git-dir")
        .arg(repository)
        .arg("worktree")
        .args(args)
        .env_clear()
        .envs(isolated_environment([]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let stderr = child.stderr.take();
    let said = stderr.map_or_else(|| Ok(Some(Vec::new())), |stderr| read(stderr, deadline));
    let status = end(&mut child, matches!(said, Ok(Some(_)))).map_err(failed)?;
    match said.map_err(failed)? {
        None => Err(SourceFault::TimedOut(" to make a worktree".to_owned())),
        Some(_) if status.success() => Ok(()),
        Some(said) => {
            Err(SourceFault::of_step("git worktree", String::from_utf8_lossy(&said).trim()))
        }
    }
}

/// What git says until it ends. `None` if that takes too long.
fn read(mut stderr: ChildStderr, deadline: Deadline) -> io::Result<Option<Vec<u8>>> {
    let (mut said, mut buffer) = (Vec::new(), [0; BUFFER_BYTES]);
    loop {
        if deadline.passed() {
            return Ok(None);
        }
        let mut wanted = [PollFd::new(stderr.as_fd(), PollFlags::POLLIN)];
        let wait = PollTimeout::try_from(deadline.remaining()).unwrap_or(PollTimeout::MAX);
        match poll(&mut wanted, wait) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let count = stderr.read(&mut buffer)?;
        if count == 0 {
            return Ok(Some(said));
        }
        let room = SAID_BYTES_MAX.saturating_sub(said.len());
        said.extend(buffer.iter().take(count.min(room)));
    }
}

/// Waits for git, which has closed its stderr or else is killed.
fn end(child: &mut Child, has_ended: bool) -> io::Result<ExitStatus> {
    if !has_ended {
        child.kill()?;
    }
    child.wait()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn git(directory: &Path, args: &[&str]) {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
        let done = Command::new("git").args(identity).args(args).current_dir(directory).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    #[test]
    fn a_worktree_is_at_head_runs_no_hook_and_is_gone_with_its_cell() {
        let place = tempfile::tempdir().unwrap();
        let (repository, cell) = (place.path().join("r"), place.path().join("cell"));
        fs::create_dir_all(&repository).unwrap();
        fs::create_dir(&cell).unwrap();
        git(&repository, &["init", "-q", "--initial-branch=main"]);
        fs::write(repository.join("a"), "committed").unwrap();
        git(&repository, &["add", "a"]);
        git(&repository, &["commit", "-qm", "first"]);
        fs::write(repository.join("a"), "changed").unwrap();
        let hook = repository.join(".git/hooks/post-checkout");
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::write(&hook, format!("#!/bin/sh\ntouch {}\n", place.path().join("ran").display()))
            .unwrap();
        fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let deadline = Deadline::after(Duration::from_secs(60));
        let worktree = CellWorktree::add(&repository, &cell, deadline).unwrap();
        assert_eq!(fs::read_to_string(cell.join("a")).unwrap(), "committed");
        fs::write(cell.join("new"), "").unwrap();
        drop(worktree);
        assert!(!cell.exists() && !place.path().join("ran").exists());
        let left = fs::read_dir(repository.join(".git/worktrees")).map_or(0, Iterator::count);
        assert_eq!(
            (left, fs::read_to_string(repository.join("a")).unwrap().as_str()),
            (0, "changed")
        );
    }

    #[test]
    fn a_directory_without_a_repository_is_named() {
        let place = tempfile::tempdir().unwrap();
        let deadline = Deadline::after(Duration::from_secs(60));
        let fault = CellWorktree::add(place.path(), &place.path().join("w"), deadline).unwrap_err();
        let words =
            format!("'{}' cannot be cloned: it is no git repository", place.path().display());
        assert_eq!(fault.to_string(), words);
    }
}
