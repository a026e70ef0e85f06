//! Runs `make` with limits on its time, its output and its processes.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use cofferdam_core::values::deadline::Deadline;

/// The most bytes kept of stderr. The rest is read and dropped.
const STDERR_BYTES_MAX: usize = 64 << 10;
/// How often to check whether a `make` that closed its pipes has ended.
const EXIT_POLL: Duration = Duration::from_millis(1);

/// The limits of `make`.
#[derive(Debug, Clone, Copy)]
pub struct MakeLimits {
    /// Wall-clock time.
    pub time_max: Duration,
    /// The most bytes on stdout.
    pub stdout_bytes_max: usize,
}

/// A `make` that ended within its limits.
#[derive(Debug)]
pub struct MakeOutput {
    /// The exit status.
    pub status: ExitStatus,
    /// The whole stdout.
    pub stdout: Vec<u8>,
    /// The beginning of stderr.
    pub stderr: Vec<u8>,
}

/// Why `make` has no output.
#[derive(Debug, thiserror::Error)]
pub enum MakeProcessError {
    /// No such program.
    #[error("make is not installed")]
    NotInstalled,
    /// The program does not start.
    #[error("make cannot be started: {0}")]
    Start(#[source] io::Error),
    /// Waiting or reading failed.
    #[error("make cannot be waited for: {0}")]
    Wait(#[source] io::Error),
    /// The time limit.
    #[error("make took longer than {} ms", .0.as_millis())]
    TooSlow(Duration),
    /// The output limit.
    #[error("make printed more than {0} bytes")]
    TooLarge(usize),
}

/// Runs `command` to its end and returns its output. On every path its process group is dead when
/// this returns.
pub fn run(mut command: Command, limits: MakeLimits) -> Result<MakeOutput, MakeProcessError> {
    let deadline = Deadline::after(limits.time_max);
    let mut group = ProcessGroup::spawn(&mut command)?;
    let mut stdout =
        Pipe::new(group.leader.stdout.take().map(OwnedFd::from), limits.stdout_bytes_max);
    let mut stderr = Pipe::new(group.leader.stderr.take().map(OwnedFd::from), STDERR_BYTES_MAX);
    while stdout.open.is_some() || stderr.open.is_some() {
        if deadline.passed() {
            return Err(MakeProcessError::TooSlow(limits.time_max));
        }
        read_ready([&mut stdout, &mut stderr], deadline).map_err(MakeProcessError::Wait)?;
        if stdout.cut {
            return Err(MakeProcessError::TooLarge(limits.stdout_bytes_max));
        }
    }
    while !group.has_ended().map_err(MakeProcessError::Wait)? {
        if deadline.passed() {
            return Err(MakeProcessError::TooSlow(limits.time_max));
        }
        thread::sleep(EXIT_POLL);
    }
    let status = group.kill_and_reap().map_err(MakeProcessError::Wait)?;
    Ok(MakeOutput { status, stdout: stdout.bytes, stderr: stderr.bytes })
}

/// A child that leads its own process group.
struct ProcessGroup {
    leader: Child,
    reaped: bool,
}

impl ProcessGroup {
    fn spawn(command: &mut Command) -> Result<Self, MakeProcessError> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let leader = command.process_group(0).spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => MakeProcessError::NotInstalled,
            _ => MakeProcessError::Start(error),
        })?;
        Ok(Self { leader, reaped: false })
    }

    fn id(&self) -> Pid {
        Pid::from_raw(self.leader.id().cast_signed())
    }

    /// Whether the leader has ended. Does not reap it, so that its id is not reused before the
    /// group is killed.
    fn has_ended(&self) -> io::Result<bool> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        Ok(waitid(Id::Pid(self.id()), flags)? != WaitStatus::StillAlive)
    }

    fn kill_and_reap(&mut self) -> io::Result<ExitStatus> {
        self.reaped = true;
        // Fails only if the group has no member left to kill.
        let _ = killpg(self.id(), Signal::SIGKILL);
        self.leader.wait()
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.kill_and_reap();
        }
    }
}

/// One stream of the child, read up to a bound.
struct Pipe {
    /// Open until the end of file.
    open: Option<File>,
    bytes: Vec<u8>,
    bytes_max: usize,
    /// Whether the stream exceeded the bound.
    cut: bool,
}

impl Pipe {
    fn new(fd: Option<OwnedFd>, bytes_max: usize) -> Self {
        Self { open: fd.map(File::from), bytes: Vec::new(), bytes_max, cut: false }
    }

    fn read_some(&mut self) -> io::Result<()> {
        let mut chunk = [0; 8 << 10];
        let Some(file) = &mut self.open else { return Ok(()) };
        let read = match file.read(&mut chunk) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        };
        if read == 0 {
            self.open = None;
        }
        let kept = read.min(self.bytes_max - self.bytes.len());
        self.bytes.extend_from_slice(&chunk[..kept]);
        self.cut |= kept < read;
        Ok(())
    }
}

/// Waits for the open pipes, at most until `deadline`, and reads what is available.
fn read_ready(pipes: [&mut Pipe; 2], deadline: Deadline) -> io::Result<()> {
    let timeout = PollTimeout::try_from(deadline.remaining()).unwrap_or(PollTimeout::MAX);
    let mut open: Vec<&mut Pipe> = pipes.into_iter().filter(|pipe| pipe.open.is_some()).collect();
    let mut fds: Vec<PollFd<'_>> = open
        .iter()
        .filter_map(|pipe| pipe.open.as_ref())
        .map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN))
        .collect();
    match poll(&mut fds, timeout) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    }
    let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
    for (pipe, _) in open.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
        pipe.read_some()?;
    }
    Ok(())
}
