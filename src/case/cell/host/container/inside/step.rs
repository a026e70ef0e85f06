//! A command in a container, and all that it started.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::facts::limit_events;
use crate::case::cell::host::container::call::set_nonblocking;
use crate::case::cell::host::container::frame::{DATA_BYTES_MAX, FrameKind, frame};
use crate::case::cell::host::container::order::{ContainerReply, LimitEvents, StepStop};
use crate::case::cell::host::descendants::{AGAIN_EVERY, DEATH_WAIT};
use crate::case::cell::host::message::{EndedStep, StepOrder, StepReply};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_sandbox::engine::reap;

/// The most frames that are read from a pipe after its last writer has ended.
const LAST_FRAMES_MAX: usize = 64;

/// A command that runs.
#[derive(Debug)]
pub(super) struct InnerStep {
    main: Pid,
    stdin: Option<PendingStdin>,
    streams: [(FrameKind, Option<File>); 2],
    began: Instant,
    deadline: Deadline,
    stopped: Option<StepStop>,
    ended: Option<WaitStatus>,
    cpu: Duration,
    memory_peak_bytes: u64,
    events_before: LimitEvents,
}

/// What of stdin the command has not read yet.
#[derive(Debug)]
struct PendingStdin {
    pipe: File,
    bytes: Vec<u8>,
    written: usize,
}

impl InnerStep {
    /// Starts the command in the working directory of this process.
    ///
    /// # Errors
    /// exec refused it.
    pub(super) fn start(order: &StepOrder, stdin: Vec<u8>, timeout: Duration) -> io::Result<Self> {
        let events_before = limit_events();
        let (program, arguments) = order.argv.split_first().ok_or(ErrorKind::InvalidInput)?;
        let has_stdin = !stdin.is_empty();
        let began = Instant::now();
        // A group of its own, as on the host.
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(&order.env)
            .stdin(if has_stdin { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let stdout = child.stdout.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let stderr = child.stderr.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let pipe = child.stdin.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let stdin = pipe.map(|pipe| PendingStdin { pipe, bytes: stdin, written: 0 });
        let main = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
        let step = Self {
            main,
            stdin,
            streams: [(FrameKind::Stdout, stdout), (FrameKind::Stderr, stderr)],
            began,
            deadline: Deadline::at(began, timeout),
            stopped: None,
            ended: None,
            cpu: Duration::ZERO,
            memory_peak_bytes: 0,
            events_before,
        };
        for pipe in step.pipes() {
            set_nonblocking(pipe)?;
        }
        Ok(step)
    }

    /// What it waits for besides the end of a process.
    pub(super) fn sources(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let stdin = self.stdin.as_ref().map(|stdin| (stdin.pipe.as_fd(), PollFlags::POLLOUT));
        let streams = self.streams.iter().filter_map(|(_, pipe)| pipe.as_ref());
        stdin.into_iter().chain(streams.map(|pipe| (pipe.as_fd(), PollFlags::POLLIN)))
    }

    /// The time until it is killed, unless it has been.
    pub(super) fn remaining(&self) -> Option<Duration> {
        self.stopped.is_none().then(|| self.deadline.remaining())
    }

    /// Kills it.
    pub(super) fn cancel(&mut self) {
        self.stop(StepStop::Cancelled);
    }

    /// Adds frames of what it wrote to `output`, if that has room, gives it stdin, and kills it when its time is over.
    /// Returns the reply when it has ended and all that it started is dead.
    ///
    /// # Errors
    /// A frame cannot be made.
    pub(super) fn advance(
        &mut self,
        output: &mut Vec<u8>,
        has_room: bool,
    ) -> io::Result<Option<ContainerReply>> {
        self.reap_dead();
        if self.ended.is_none() {
            if self.stopped.is_none() && self.deadline.passed() {
                self.stop(StepStop::Late);
            }
            if has_room {
                self.write_stdin();
                self.pass_on(output, 1)?;
            }
            return Ok(None);
        }
        let wall = self.began.elapsed();
        let is_dead = self.kill_rest();
        self.pass_on(output, LAST_FRAMES_MAX)?;
        let reply = match is_dead {
            true => StepReply::Ended(self.with_usage(wall)),
            false => StepReply::Failed { step: "kill".to_owned(), errno: libc::EBUSY },
        };
        let events = limit_events().since(self.events_before);
        Ok(Some(ContainerReply { reply, stopped: self.stopped, events }))
    }

    fn stop(&mut self, reason: StepStop) {
        self.stopped.get_or_insert(reason);
        kill_all();
    }

    /// Kills all that is left of it. Returns whether nothing is.
    fn kill_rest(&mut self) -> bool {
        let deadline = Deadline::after(DEATH_WAIT);
        while self.reap_dead() {
            if deadline.passed() {
                return false;
            }
            kill_all();
            std::thread::sleep(AGAIN_EVERY);
        }
        true
    }

    /// Reaps all that is dead. Returns whether something is alive.
    fn reap_dead(&mut self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        loop {
            let dead = match waitid(Id::All, flags) {
                Ok(WaitStatus::StillAlive) => return true,
                Ok(dead) => dead,
                Err(Errno::EINTR) => continue,
                Err(_) => return false,
            };
            let Some(pid) = dead.pid() else { return true };
            if pid == self.main {
                self.ended = Some(dead);
            }
            if let Ok(usage) = reap(pid.as_raw()) {
                self.cpu += usage.cpu;
                self.memory_peak_bytes = self.memory_peak_bytes.max(usage.max_rss_bytes);
            }
        }
    }

    fn write_stdin(&mut self) {
        let Some(PendingStdin { pipe, bytes, written }) = &mut self.stdin else { return };
        match pipe.write(bytes.get(*written..).unwrap_or_default()) {
            Ok(count) => *written += count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // It need not read it.
            Err(_) => *written = bytes.len(),
        }
        if *written >= bytes.len() {
            self.stdin = None;
        }
    }

    /// Adds at most so many frames of each stream.
    fn pass_on(&mut self, output: &mut Vec<u8>, frames_max: usize) -> io::Result<()> {
        let mut buffer = vec![0; DATA_BYTES_MAX];
        for (kind, stream) in &mut self.streams {
            for _ in 0..frames_max {
                let Some(pipe) = stream else { break };
                match pipe.read(&mut buffer) {
                    Ok(count) if count > 0 => {
                        let bytes = buffer.get(..count).unwrap_or_default();
                        output.extend(frame(*kind, bytes)?);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Ok(_) | Err(_) => *stream = None,
                }
            }
        }
        Ok(())
    }

    fn pipes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources().map(|(pipe, _)| pipe)
    }

    fn with_usage(&self, wall: Duration) -> EndedStep {
        let (code, signal) = match self.ended {
            Some(WaitStatus::Signaled(_, signal, _)) => (0, Some(signal as i32)),
            Some(WaitStatus::Exited(_, code)) => (u8::try_from(code & 0xff).unwrap_or(0), None),
            _ => (0, None),
        };
        EndedStep {
            code,
            signal,
            wall_ms: milliseconds(wall),
            cpu_ms: milliseconds(self.cpu),
            memory_peak_bytes: self.memory_peak_bytes,
        }
    }
}

/// Kills every process of the container but this one, which is its first.
fn kill_all() {
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
