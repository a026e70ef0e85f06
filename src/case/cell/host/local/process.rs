//! The executor's end of a command: its helper, its output and its time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::case::cell::capture::StepOutput;
use crate::case::cell::error::ExecError;
use crate::case::cell::host::descendants::DEATH_WAIT;
use crate::case::cell::host::message::{StepOrder, StepReply, receive, send};
use crate::case::cell::request::CellStep;
use cofferdam_core::Stream;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// The argument with which our program is a helper.
const HELPER: &str = "cell-step";
/// How long the helper may take to read its order, and to write its reply.
const MESSAGE_WAIT: Duration = Duration::from_secs(10);
/// How often it is seen whether the helper, which has replied, has ended.
const END_CHECKED_EVERY: Duration = Duration::from_micros(200);
/// Bytes read at a time, and the most reads before the other sources have their turn.
const BUFFER_BYTES: usize = 64 << 10;
const READS_MAX: usize = 16;

/// A command that runs.
#[derive(Debug)]
pub(super) struct StepProcess {
    helper: Child,
    socket: UnixStream,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

/// Why a command was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// Its time was over.
    Late,
    /// It was cancelled.
    Cancelled,
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct StepEnd {
    pub(super) reply: StepReply,
    pub(super) stopped: Option<Stopped>,
}

impl StepProcess {
    /// Starts `helper` and gives it `step`.
    pub(super) fn start(helper: &Path, step: &CellStep, stdin: &[u8]) -> Result<Self, ExecError> {
        let failed = |error: io::Error| ExecError::failed("start helper", error);
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        let mut child = Command::new(helper)
            .arg(HELPER)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut process = Self { helper: child, socket, stdout, stderr };
        process.order(step, stdin).map_err(failed)?;
        Ok(process)
    }

    fn order(&mut self, step: &CellStep, stdin: &[u8]) -> io::Result<()> {
        let CellStep { argv, env, cwd } = step.clone();
        let order = StepOrder { argv, env, cwd, stdin_bytes: stdin.len() };
        self.socket.set_write_timeout(Some(MESSAGE_WAIT))?;
        send(&mut self.socket, &order)?;
        self.socket.write_all(stdin)?;
        self.socket.set_read_timeout(Some(MESSAGE_WAIT))?;
        set_nonblocking(self.stdout.as_ref())?;
        set_nonblocking(self.stderr.as_ref())
    }

    /// Waits until the command has ended and all that it started is dead.
    pub(super) fn supervise(
        mut self,
        timeout: Duration,
        cancel: &CancelToken,
        output: &StepOutput,
    ) -> Result<StepEnd, ExecError> {
        let failed = |error: io::Error| ExecError::failed("helper", error);
        let mut stopped = None;
        let mut deadline = Deadline::after(timeout);
        loop {
            let ready = self.wait(deadline, cancel, stopped.is_some()).map_err(failed)?;
            self.read(output);
            if ready.has_reply {
                let reply = receive(&mut self.socket).map_err(failed)?;
                // Nothing writes any more.
                while self.read(output) {}
                return Ok(StepEnd { reply, stopped });
            }
            if stopped.is_none() && (ready.is_cancelled || deadline.passed()) {
                let reason = if ready.is_cancelled { Stopped::Cancelled } else { Stopped::Late };
                stopped = Some(reason);
                deadline = Deadline::after(DEATH_WAIT + MESSAGE_WAIT);
                self.socket.shutdown(Shutdown::Write).map_err(failed)?;
            } else if deadline.passed() {
                return Err(ExecError::failed("kill", "a process of the command does not die"));
            }
        }
    }

    /// Waits for output, the reply, the cancel token or the deadline.
    fn wait(
        &self,
        deadline: Deadline,
        cancel: &CancelToken,
        is_stopped: bool,
    ) -> io::Result<Ready> {
        let mut sources = vec![PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        if !is_stopped {
            sources.push(PollFd::new(cancel.as_fd(), PollFlags::POLLIN));
        }
        let out = self.stdout.as_ref().map(AsFd::as_fd);
        let pipes = [out, self.stderr.as_ref().map(AsFd::as_fd)];
        sources
            .extend(pipes.into_iter().flatten().map(|pipe| PollFd::new(pipe, PollFlags::POLLIN)));
        // Rounded up, so that the deadline has passed then.
        let wait = deadline.remaining() + Duration::from_millis(1);
        match poll(&mut sources, PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |at: usize| sources.get(at).is_some_and(|source| source.any() == Some(true));
        Ok(Ready { has_reply: is_ready(0), is_cancelled: !is_stopped && is_ready(1) })
    }

    /// Reads what was written. Returns whether there may be more.
    fn read(&mut self, output: &StepOutput) -> bool {
        let more = read_from(&mut self.stdout, Stream::Stdout, output);
        read_from(&mut self.stderr, Stream::Stderr, output) || more
    }
}

/// What a wait has found.
#[derive(Debug, Clone, Copy)]
struct Ready {
    has_reply: bool,
    is_cancelled: bool,
}

fn set_nonblocking(pipe: Option<&impl AsFd>) -> io::Result<()> {
    let Some(pipe) = pipe else { return Ok(()) };
    fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Reads from `pipe`, which is closed at its end. Returns whether there may be more.
fn read_from<R: Read>(pipe: &mut Option<R>, stream: Stream, output: &StepOutput) -> bool {
    let mut buffer = vec![0; BUFFER_BYTES];
    for _ in 0..READS_MAX {
        let Some(open) = pipe else { return false };
        match open.read(&mut buffer) {
            Ok(count) if count > 0 => {
                output.add(stream, buffer.get(..count).unwrap_or_default());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => *pipe = None,
        }
    }
    pipe.is_some()
}

impl Drop for StepProcess {
    fn drop(&mut self) {
        // It kills what is below when the socket ends.
        let _ = self.socket.shutdown(Shutdown::Both);
        (self.stdout, self.stderr) = (None, None);
        let deadline = Deadline::after(DEATH_WAIT);
        while let Ok(None) = self.helper.try_wait() {
            if deadline.passed() {
                log::error!("the helper of a command does not end");
                let _ = self.helper.kill();
                break;
            }
            thread::sleep(END_CHECKED_EVERY);
        }
    }
}
