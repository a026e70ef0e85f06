//! Short calls of an engine, each with a deadline.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::case::cell::error::ExecError;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// The most bytes that an engine's answer may have.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// What is shown of what an engine complained of, characters.
pub(super) const TAIL_CHARACTERS_MAX: usize = 2000;
const BUFFER_BYTES: usize = 64 << 10;
/// How often it is seen whether a program has ended whose streams have.
const END_CHECKED_EVERY: Duration = Duration::from_millis(1);

/// What an engine answered.
#[derive(Debug)]
pub(super) struct EngineAnswer {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    /// The end of what it complained of.
    pub(super) tail: String,
}

/// Calls `program` with `words` and waits until it ends. It is killed at the deadline, and when `cancel` is raised.
pub(super) fn call(
    program: &Path,
    words: &[String],
    deadline: Deadline,
    cancel: Option<&CancelToken>,
) -> Result<EngineAnswer, ExecError> {
    let verb = words.first().map_or("", String::as_str);
    let failed =
        |reason: &dyn std::fmt::Display| ExecError::failed("engine", format!("{verb}: {reason}"));
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A signal of the terminal ends us, and we end it.
        .process_group(0)
        .spawn()
        .map_err(|error| failed(&error))?;
    let mut streams = EngineStreams::of(&mut child);
    let ended = streams.read_to_end(deadline, cancel).and_then(|()| wait(&mut child, deadline));
    match ended {
        Ok(status) => {
            Ok(EngineAnswer { status, stdout: streams.answer, tail: tail(&streams.complaint) })
        }
        Err(reason) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(failed(&reason))
        }
    }
}

/// The end of `text`, as errors show it.
pub(super) fn tail(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_end();
    let skipped = text.chars().count().saturating_sub(TAIL_CHARACTERS_MAX);
    text.chars().skip(skipped).collect()
}

/// Waits until one of `sources` is ready, the deadline has passed or `cancel` is raised.
///
/// # Errors
/// The kernel refuses.
pub(super) fn wait_for(
    sources: &[(BorrowedFd<'_>, PollFlags)],
    deadline: Deadline,
    cancel: Option<&CancelToken>,
) -> Result<Vec<bool>, Errno> {
    let polled = sources.iter().map(|(source, flags)| PollFd::new(*source, *flags));
    let mut polled: Vec<_> = polled.collect();
    polled.extend(cancel.map(|cancel| PollFd::new(cancel.as_fd(), PollFlags::POLLIN)));
    // Rounded up, so that the deadline has passed then.
    let wait = deadline.remaining() + Duration::from_millis(1);
    match poll(&mut polled, PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno),
    }
    Ok(polled.iter().map(|source| source.any() == Some(true)).collect())
}

/// Lets reads and writes of `pipe` return at once.
pub(super) fn set_nonblocking(pipe: impl AsFd) -> Result<(), Errno> {
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop)
}

/// Waits for the end of `child`, whose streams have ended.
pub(super) fn wait(child: &mut Child, deadline: Deadline) -> Result<ExitStatus, String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if deadline.passed() => return Err("it does not end in time".to_owned()),
            Ok(None) => thread::sleep(END_CHECKED_EVERY),
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[derive(Debug)]
struct EngineStreams {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    answer: Vec<u8>,
    complaint: Vec<u8>,
}

impl EngineStreams {
    fn of(child: &mut Child) -> Self {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        Self { stdout, stderr, answer: Vec::new(), complaint: Vec::new() }
    }

    fn read_to_end(
        &mut self,
        deadline: Deadline,
        cancel: Option<&CancelToken>,
    ) -> Result<(), String> {
        let words = |errno: Errno| errno.desc().to_owned();
        self.stdout.as_ref().map_or(Ok(()), set_nonblocking).map_err(words)?;
        self.stderr.as_ref().map_or(Ok(()), set_nonblocking).map_err(words)?;
        while self.stdout.is_some() || self.stderr.is_some() {
            let pipes =
                [self.stdout.as_ref().map(AsFd::as_fd), self.stderr.as_ref().map(AsFd::as_fd)];
            let pipes: Vec<_> =
                pipes.into_iter().flatten().map(|pipe| (pipe, PollFlags::POLLIN)).collect();
            let ready = wait_for(&pipes, deadline, cancel).map_err(words)?;
            if ready.get(pipes.len()) == Some(&true) {
                return Err("it is cancelled".to_owned());
            }
            if deadline.passed() {
                return Err("it does not end in time".to_owned());
            }
            read_some(&mut self.stdout, &mut self.answer);
            read_some(&mut self.stderr, &mut self.complaint);
            if self.answer.len() > ANSWER_BYTES_MAX || self.complaint.len() > ANSWER_BYTES_MAX {
                return Err("its answer is too long".to_owned());
            }
        }
        Ok(())
    }
}

/// Adds what can be read of `pipe` to `bytes`. The pipe is closed at its end.
pub(super) fn read_some<R: Read>(pipe: &mut Option<R>, bytes: &mut Vec<u8>) {
    let Some(open) = pipe else { return };
    let mut buffer = vec![0; BUFFER_BYTES];
    match open.read(&mut buffer) {
        Ok(count) if count > 0 => bytes.extend(buffer.get(..count).unwrap_or_default()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
        Ok(_) | Err(_) => *pipe = None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(command: &str, wait: Duration) -> Result<EngineAnswer, String> {
        let words = ["-c".to_owned(), command.to_owned()];
        let called = call(Path::new("/bin/sh"), &words, Deadline::after(wait), None);
        called.map_err(|error| error.message)
    }

    #[test]
    fn an_answer_is_read_whole_and_a_complaint_to_its_end() {
        let long =
            "i=0; while [ $i -lt 3000 ]; do echo abcdefghij; i=$((i+1)); done; echo no >&2; exit 3";
        let answer = called(long, Duration::from_secs(60)).unwrap();
        assert_eq!((answer.status.code(), answer.stdout.len()), (Some(3), 33_000));
        assert_eq!(answer.tail, "no");
        assert_eq!(tail("é".repeat(2001).as_bytes()).chars().count(), TAIL_CHARACTERS_MAX);
    }

    #[test]
    fn a_call_that_does_not_end_is_killed() {
        let error = called("echo begun; exec sleep 1000", Duration::from_millis(50)).unwrap_err();
        assert!(error.ends_with("it does not end in time"), "{error}");
    }
}
