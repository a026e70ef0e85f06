//! A run of git on the host, in a process group of its own: git starts other commands, and what is killed alone leaves
//! them at work.

use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::case::source::error::SourceFault;
use crate::evaluation::cache::is_raised;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// How often it is seen whether git has ended.
const CHECKED_EVERY: Duration = Duration::from_millis(1);
/// How long what was killed may take to die.
const DEATH_WAIT: Duration = Duration::from_secs(10);
/// Bytes of what git says that an error quotes.
const SAID_BYTES_MAX: usize = 4096;
const STEP: &str = "git worktree";

/// Runs `git` until it ends, or one of the ends is reached. When this returns, it is dead, and so is all that it started
/// and that has not left its process group.
///
/// # Errors
/// It failed, was ended, or does not die.
pub(super) fn run_in_group(
    git: &mut Command,
    ends: (&CancelToken, Deadline),
) -> Result<(), SourceFault> {
    let failed = |error: io::Error| SourceFault::of_step(STEP, error);
    git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let mut child = git.spawn().map_err(failed)?;
    let mut said = GitWords::of(child.stderr.take());
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    let stopped = watch(group, &mut said, ends);
    // Until git is reaped, the number is no other group's.
    let _ = killpg(group, Signal::SIGKILL);
    let status = reap(&mut child, group).map_err(failed)?;
    said.read();
    match stopped.map_err(failed)? {
        Some(fault) => Err(fault),
        None if status.success() => Ok(()),
        None => Err(SourceFault::of_step(STEP, said.text(status))),
    }
}

/// Waits until the leader of `group` has ended; or says what ends it.
fn watch(
    group: Pid,
    said: &mut GitWords,
    (cancel, deadline): (&CancelToken, Deadline),
) -> io::Result<Option<SourceFault>> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        if is_raised(cancel) {
            return Ok(Some(SourceFault::Cancelled));
        }
        said.read();
        match waitid(Id::Pid(group), flags) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        if deadline.passed() {
            return Ok(Some(SourceFault::TimedOut(" to make a worktree".to_owned())));
        }
        thread::sleep(CHECKED_EVERY);
    }
}

/// Waits for the end of all of `group`, which is killed.
fn reap(child: &mut Child, group: Pid) -> io::Result<ExitStatus> {
    let deadline = Deadline::after(DEATH_WAIT);
    let mut status = None;
    while !deadline.passed() {
        if status.is_none() {
            status = child.try_wait()?;
        }
        // It is dead and reaped, by whoever has it as a child.
        if let (Some(status), Err(Errno::ESRCH)) = (status, killpg(group, None)) {
            return Ok(status);
        }
        thread::sleep(CHECKED_EVERY);
    }
    Err(io::Error::other("a process does not die"))
}

/// What git says on stderr.
struct GitWords {
    stderr: Option<ChildStderr>,
    said: Vec<u8>,
}

impl GitWords {
    fn of(stderr: Option<ChildStderr>) -> Self {
        let set = |stderr: &ChildStderr| fcntl(stderr, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        // One that would block is not read.
        let stderr = stderr.filter(|stderr| set(stderr).is_ok());
        Self { stderr, said: Vec::new() }
    }

    /// Reads what is there now.
    fn read(&mut self) {
        let mut buffer = [0; SAID_BYTES_MAX];
        while let Some(stderr) = &mut self.stderr {
            match stderr.read(&mut buffer) {
                Ok(count) if count > 0 => {
                    let room = SAID_BYTES_MAX.saturating_sub(self.said.len());
                    self.said.extend(buffer.iter().take(count.min(room)));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => self.stderr = None,
            }
        }
    }

    fn text(&self, status: ExitStatus) -> String {
        match String::from_utf8_lossy(&self.said).trim() {
            "" => status.to_string(),
            said => said.to_owned(),
        }
    }
}
