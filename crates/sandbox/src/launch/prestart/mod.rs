//! Programs that are executed ahead of their runs, in prepared sandboxes, and wait for them.
//!
//! Such a program brings its runtime up with trusted code only. It reports that with the line
//! `ready` on its standard output, and waits until its standard input, a pipe, ends. Everything that
//! restricts a tenant's program restricts it too, from its first instruction on. Whatever else it
//! does before the run makes the sandbox useless, and the run gets another one.

mod waiting;

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;
use nix::unistd::{Gid, Uid, fchown};

use self::waiting::Waiting;
use crate::cgroup::{CpuClass, SandboxGroup};
use crate::files::sandbox_fs::SandboxFs;
use crate::launch::handshake::Message;
use crate::launch::running::{PreparedSandbox, RunningSandbox};
use crate::launch::sandbox_host::SandboxHost;
use crate::locks::{allow_call, receive_listener};
use crate::supervise::Released;
use crate::supervise::io::output_capture::OutputCapture;
use crate::supervise::io::pipe::{PipeEnd, pipe_into_sandbox};
use crate::supervise::io::stdin_feed::StdinFeed;
use crate::supervise::report::BEFORE_PROGRAM;
use crate::sys;
use crate::sys::streams::unread_bytes;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{Limits, RunSpec, SetupFailure, StdinSource};

/// The line by which a program reports that it waits.
const READY: &[u8] = b"ready\n";
/// How long it may take to get there.
const PRESTART_WAIT: Duration = Duration::from_secs(60);
/// The CPU seconds that each of its processes may use until the run.
const PRESTART_CPU_SECONDS_MAX: u64 = 30;
/// The processes of a program that waits, besides the init. Threads do not count.
const PRESTART_PROCESSES_MAX: usize = 16;
/// The calls for file locks and sockets that it may make until it is ready.
const PRESTART_CALLS_MAX: usize = 256;
/// The pause between two looks at its memory and its processes.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The same between its line and its wait.
const WAIT_INTERVAL: Duration = Duration::from_millis(2);

/// A sandbox whose program was executed ahead of its run, and waits. Dropped, it is killed.
#[derive(Debug)]
pub struct WarmSandbox {
    prepared: PreparedSandbox,
    /// Our end of the program's standard input.
    stdin: PipeEnd,
    ready: ReadyProgram,
}

/// A program that is ready.
#[derive(Debug, Clone, Copy)]
struct ReadyProgram {
    /// Its memory by then.
    bytes: u64,
    /// The CPU time it had used by then.
    cpu: Duration,
    /// Its thread that waits, where the kernel shows it.
    waiting: Waiting,
}

/// What a program may use until it is ready, besides its own limits.
#[derive(Debug, Clone, Copy)]
pub struct PrestartBounds<'a> {
    /// Its memory, in bytes.
    pub bytes_max: u64,
    /// Set when the program is no longer wanted.
    pub is_given_up: &'a AtomicBool,
}

/// Why there is no program that waits.
#[derive(Debug, thiserror::Error)]
pub enum PrestartFault {
    /// The sandbox, or a look at it, failed.
    #[error(transparent)]
    Setup(#[from] SetupFailure),
    /// It was executed, and did something else.
    #[error("{0}")]
    Program(&'static str),
    /// It needs more memory than there is for it.
    #[error("it uses {bytes} bytes of memory, more than there is room for")]
    TooLarge {
        /// What it had by then.
        bytes: u64,
    },
    /// It is no longer wanted.
    #[error("given up")]
    GivenUp,
}

impl WarmSandbox {
    /// The memory that it had when it was ready, in bytes.
    pub fn bytes(&self) -> u64 {
        self.ready.bytes
    }

    /// The CPU time that it had used when it was ready.
    pub fn cpu(&self) -> Duration {
        self.ready.cpu
    }

    /// Whether it has not moved since it was ready, as far as one can see.
    fn is_waiting(&self) -> io::Result<bool> {
        if weakened::lacks(Wall::Ready) {
            return Ok(true);
        }
        let running = &self.prepared.running;
        let moved = running.status.pipe().is_none_or(is_readable);
        let outputs = [&running.streams.stdout, &running.streams.stderr];
        let mut is_silent = true;
        for pipe in outputs.into_iter().filter_map(OutputCapture::pipe) {
            is_silent &= unread_bytes(pipe)? == 0;
        }
        let waits = self.ready.waiting.goes_on();
        Ok(!moved && is_silent && waits && !running.is_dead())
    }
}

impl SandboxHost {
    /// Executes the program of `spec` in a sandbox around `fs`, and waits until it is ready. The
    /// sandbox dies with the calling thread, and keeps `retained` until it is dead. Its program gives
    /// way to every other one.
    pub fn prestart(
        &self,
        mut spec: RunSpec,
        fs: SandboxFs,
        retained: Retained,
        bounds: &PrestartBounds<'_>,
    ) -> Result<WarmSandbox, PrestartFault> {
        let failed = |error: io::Error| SetupFailure::from_io("prestart", &error);
        let (stdin, theirs) = pipe_into_sandbox().map_err(failed)?;
        let (uid, gid) = (Uid::from_raw(fs.tenant()), Gid::from_raw(fs.tenant()));
        fchown(&theirs, Some(uid), Some(gid)).map_err(|errno| failed(errno.into()))?;
        spec.stdin = StdinSource::Given(theirs);
        let mut prepared = self.prepare(spec, fs, retained)?;
        let running = &mut prepared.running;
        group_of(running)?.set_cpu_class(CpuClass::Prestart);
        // The hard limit is lowered at the release: raising it takes a privilege.
        let hard = self.plans.hard_limits.cpu_seconds_hard();
        running.release_with([PRESTART_CPU_SECONDS_MAX.min(hard), hard])?;
        let deadline = Deadline::after(PRESTART_WAIT);
        let pipe = fstat(&stdin).map_err(|errno| failed(errno.into()))?.st_ino;
        let ready = running.await_ready(bounds, pipe, deadline)?;
        Ok(WarmSandbox { prepared, stdin, ready })
    }

    /// Whether `warm` still waits, and masks what a sandbox created now would mask.
    pub fn is_waiting(&self, warm: &WarmSandbox) -> Result<bool, SetupFailure> {
        let waits = warm.is_waiting();
        let waits = waits.map_err(|error| SetupFailure::from_io("prestart", &error))?;
        Ok(waits && self.is_usable(&warm.prepared)?)
    }

    /// Gives the program of `warm` its `input`, or ends it without any. The program goes on as the run:
    /// from here on it has the times of `limits`, and what it prints is the run's. A failure comes
    /// before that. The report counts the preparation from `began`. The sandbox keeps `retained` too.
    pub fn release(
        &self,
        warm: WarmSandbox,
        (mut limits, input): (Limits, StdinSource),
        retained: Retained,
        began: Instant,
    ) -> Result<RunningSandbox, SetupFailure> {
        let not_enforced = self.clamp(&mut limits);
        let WarmSandbox { prepared, stdin, .. } = warm;
        let mut running = prepared.running;
        let init = running.live.process.pid;
        let fs = running.live.resources.fs.as_ref();
        let tenant = fs.map(SandboxFs::tenant).ok_or_else(uncounted)?;
        let group = running.live.resources.group.as_mut().ok_or_else(uncounted)?;
        let cpu = group.cpu_time().ok_or_else(uncounted)?;
        // What one process has used is at most what all have.
        let used = cpu.as_secs().saturating_add(u64::from(cpu.subsec_nanos() > 0));
        limit_processes(group, init, tenant, used.saturating_add(limits.cpu_seconds_max))?;
        group.restart_memory_peak();
        group.set_cpu_class(CpuClass::Short);
        running.live.retained.extend(retained);
        running.limits = limits;
        running.prepare_began = began;
        running.released = Some(Released { at: Instant::now(), cpu });
        running.streams.feed = match input {
            StdinSource::Null => None,
            source => Some(StdinFeed::new(source, stdin)),
        };
        Ok(running.enforcing(self.enforced(), not_enforced))
    }
}

impl RunningSandbox {
    /// Waits until the program reports that it is ready, and waits in a read of the pipe with the
    /// inode `pipe`.
    fn await_ready(
        &mut self,
        bounds: &PrestartBounds<'_>,
        pipe: u64,
        deadline: Deadline,
    ) -> Result<ReadyProgram, PrestartFault> {
        let mut said = Vec::with_capacity(READY.len());
        loop {
            // Checked first: what a dead program has said can still be read.
            let dead = self.is_dead();
            let has_begun = self.hear_status()?;
            if has_begun && weakened::lacks(Wall::Ready) {
                let (bytes, cpu) = self.look(bounds)?;
                return Ok(ReadyProgram { bytes, cpu, waiting: Waiting::Unknown });
            }
            hear(&mut self.streams.stderr, &mut Vec::new(), &[])?;
            hear(&mut self.streams.stdout, &mut said, READY)?;
            let (bytes, cpu) = self.look(bounds)?;
            if dead {
                return Err(PrestartFault::Program("it ended"));
            }
            self.allow_calls()?;
            let is_ready = said == READY;
            if is_ready {
                match self.waiting(pipe)? {
                    Waiting::Nobody => {}
                    waiting => {
                        self.is_sound()?;
                        return Ok(ReadyProgram { bytes, cpu, waiting });
                    }
                }
            }
            if bounds.is_given_up.load(Ordering::Relaxed) {
                return Err(PrestartFault::GivenUp);
            }
            if deadline.passed() {
                return Err(PrestartFault::Program("it is not ready in time"));
            }
            let at_most = if is_ready { WAIT_INTERVAL } else { LOOK_INTERVAL };
            self.await_move(at_most)
                .map_err(|errno| SetupFailure::from_errno("prestart", errno as i32))?;
        }
    }

    /// Whether the program has begun meanwhile.
    fn hear_status(&mut self) -> Result<bool, PrestartFault> {
        let failed = |error: io::Error| SetupFailure::from_io("prestart", &error);
        let mut has_begun = false;
        while let Some(message) = self.status.next().map_err(failed)? {
            match message {
                Message::Prepared => {}
                Message::Ready { .. } => {
                    has_begun = true;
                    if self.plan.watches_locks() {
                        // It has been sent by now.
                        let listener = receive_listener(self.release.as_fd()).map_err(failed)?;
                        self.locks = Some((listener, 0));
                    }
                }
                Message::Failed { step, errno } => {
                    return Err(SetupFailure::from_errno(self.plan.step_name(step), errno).into());
                }
                Message::Ended { .. } => return Err(PrestartFault::Program("it ended")),
            }
        }
        Ok(has_begun)
    }

    /// Lets a call for a file lock or a socket continue. A runtime makes few; the run has the usual
    /// limit on locks, and finds those that the runtime holds counted.
    fn allow_calls(&mut self) -> Result<(), PrestartFault> {
        let Some((listener, calls)) = &mut self.locks else { return Ok(()) };
        if is_readable(listener.as_fd()) {
            *calls += 1;
            if *calls > PRESTART_CALLS_MAX {
                return Err(PrestartFault::Program("it asked for too many file locks or sockets"));
            }
            let allowed = allow_call(listener.as_fd());
            allowed.map_err(|error| SetupFailure::from_io("prestart", &error))?;
        }
        Ok(())
    }

    /// Its memory and CPU time, unless it uses too much.
    fn look(&self, bounds: &PrestartBounds<'_>) -> Result<(u64, Duration), PrestartFault> {
        let group = group_of(self)?;
        let bytes = group.memory_now().ok_or_else(uncounted)?;
        if bytes > bounds.bytes_max {
            return Err(PrestartFault::TooLarge { bytes });
        }
        let processes = group.processes().map_err(|error| unlisted(&error))?;
        if processes.len() > PRESTART_PROCESSES_MAX + 1 {
            return Err(PrestartFault::Program("it has too many processes"));
        }
        Ok((bytes, group.cpu_time().ok_or_else(uncounted)?))
    }

    /// Whether one of its threads waits in a read of the pipe with the inode `pipe`.
    fn waiting(&self, pipe: u64) -> Result<Waiting, PrestartFault> {
        let processes = group_of(self)?.processes().map_err(|error| unlisted(&error))?;
        Ok(waiting::find(&processes, pipe))
    }

    /// Refuses a program that met a limit: the report of the run would name it.
    fn is_sound(&self) -> Result<(), PrestartFault> {
        let usage = group_of(self)?.usage(true);
        let peak = usage.processes_peak.unwrap_or(0);
        let met = usage.oom_kills.unwrap_or(0) > 0
            || usage.memory_refused > 0
            || usage.processes_refused > 0
            || peak >= self.limits.processes_max;
        if met { Err(PrestartFault::Program("it met a limit")) } else { Ok(()) }
    }

    /// Waits until something happens, or the next look is due.
    fn await_move(&self, at_most: Duration) -> Result<(), Errno> {
        let outputs = [self.streams.stdout.pipe(), self.streams.stderr.pipe(), self.status.pipe()];
        let process = Some(self.live.process.pidfd.as_fd());
        let locks = self.locks.as_ref().map(|(listener, _)| listener.as_fd());
        let fds = outputs.into_iter().chain([process, locks]).flatten();
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::ZERO);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// Adds to `said` what the program has written, which may be `expected` and nothing else.
fn hear(
    stream: &mut OutputCapture,
    said: &mut Vec<u8>,
    expected: &[u8],
) -> Result<(), PrestartFault> {
    let mut bytes = [0; 64];
    loop {
        match stream.read_before_run(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                said.extend_from_slice(bytes.get(..count).unwrap_or_default());
                if !expected.starts_with(said) {
                    return Err(PrestartFault::Program("it printed something else than `ready`"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(SetupFailure::from_io("prestart", &error).into()),
        }
    }
}

/// Gives the tenant's processes, which all wait, the CPU seconds of their run.
fn limit_processes(
    group: &SandboxGroup,
    init: i32,
    tenant: u32,
    seconds: u64,
) -> Result<(), SetupFailure> {
    let mut processes = group.processes().map_err(|error| unlisted(&error))?;
    if processes.len() > PRESTART_PROCESSES_MAX + 1 {
        let words = "the prestarted program has too many processes";
        return Err(SetupFailure::from_words(BEFORE_PROGRAM, words));
    }
    processes.retain(|pid| *pid != init);
    // As in `release_words`: the soft limit has to come first.
    sys::limits::set_cpu_seconds(&processes, tenant, [seconds, seconds.saturating_add(1)])
        .map_err(|error| SetupFailure::from_io(BEFORE_PROGRAM, &error))
}

fn group_of(running: &RunningSandbox) -> Result<&SandboxGroup, SetupFailure> {
    running.live.resources.group.as_ref().ok_or_else(uncounted)
}

fn uncounted() -> SetupFailure {
    SetupFailure::from_words(BEFORE_PROGRAM, "this host counts no memory or CPU time of a sandbox")
}

fn unlisted(error: &impl std::fmt::Display) -> SetupFailure {
    SetupFailure::from_words(BEFORE_PROGRAM, format!("list processes: {error}"))
}

fn is_readable(pipe: std::os::fd::BorrowedFd<'_>) -> bool {
    let mut pipe = [PollFd::new(pipe, PollFlags::POLLIN)];
    !poll(&mut pipe, PollTimeout::ZERO).is_ok_and(|ready| ready == 0)
}
