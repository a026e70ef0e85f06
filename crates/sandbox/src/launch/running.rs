//! A sandbox from the clone of its init to its report.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};

use super::handshake::{Message, StatusPipe};
use crate::files::sandbox_fs::{SandboxFs, is_full};
use crate::init::wire::RELEASE_WORDS;
use crate::locks::LockWatch;
use crate::plan::ChildPlan;
use crate::plan::rootfs::MaskedPath;
use crate::plan::sent_program::SentProgram;
use crate::pool::egress_listener::{listener_of, share};
use crate::supervise::cleanup::live_sandbox::LiveSandbox;
use crate::supervise::cleanup::queue::SandboxResources;
use crate::supervise::io::StdioPipes;
use crate::supervise::kill_count::KillFailures;
use crate::supervise::report::{BEFORE_PROGRAM, FinishedRun};
use crate::supervise::{Released, Supervised, supervise};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{
    EgressService, Enforced, Limits, NotStarted, OutputSink, RunReport, SetupFailure, Watch,
    WorkspacePath,
};

/// A sandbox whose init is running. Dropped unsupervised, it is killed.
#[derive(Debug)]
pub struct RunningSandbox {
    pub(crate) live: LiveSandbox,
    pub(crate) plan: ChildPlan,
    pub(crate) status: StatusPipe,
    pub(crate) release: OwnedFd,
    pub(crate) streams: StdioPipes,
    /// The listener for file lock calls and the calls reported so far, if it was received before the
    /// run.
    pub(crate) locks: Option<(OwnedFd, usize)>,
    /// Our end of the terminal, if the program has one.
    pub(crate) terminal: Option<Arc<OwnedFd>>,
    /// What serves its socket, if it may reach something.
    pub(crate) egress: Option<Retained>,
    pub(crate) limits: Limits,
    /// Since when the run counts, if its program was started before.
    pub(crate) released: Option<Released>,
    pub(crate) prepare_began: Instant,
    pub(crate) enforced: Enforced,
    pub(crate) not_enforced: Vec<String>,
}

/// A sandbox whose program waits to be resumed. It holds nothing of a tenant's yet. Dropped, it is
/// killed.
///
/// Every sandbox is prepared before its program begins, by the same steps: except by its age, a
/// tenant cannot tell one that waited for long from one created for its request.
#[derive(Debug)]
pub struct PreparedSandbox {
    pub(crate) running: RunningSandbox,
    /// What it masks of the host.
    pub(crate) masked: Vec<MaskedPath>,
    /// Where it shows a mounted workspace, if it does.
    pub(crate) place: Option<WorkspacePath>,
}

/// Lets the program that waits at the other end of `release` begin.
pub(crate) fn release_program(release: &OwnedFd, limits: &Limits) -> Result<(), SetupFailure> {
    send_words(release, release_words(limits))
}

fn send_words(release: &OwnedFd, words: [u64; RELEASE_WORDS]) -> Result<(), SetupFailure> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    send_release(release, &bytes)
}

fn release_words(limits: &Limits) -> [u64; RELEASE_WORDS] {
    let soft = limits.cpu_seconds_max;
    // If both were the same, the kernel would send SIGKILL and never SIGXCPU, and the report
    // could not tell the reason.
    [soft, soft.saturating_add(1)]
}

/// Sends a message into the empty socket. The program's process does not accept a part of it.
fn send_release(release: &OwnedFd, bytes: &[u8]) -> Result<(), SetupFailure> {
    match send(release.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT) {
        Ok(sent) if sent < bytes.len() => {
            Err(SetupFailure::from_errno(BEFORE_PROGRAM, libc::EMSGSIZE))
        }
        // The sandbox failed before: its own record says why.
        Ok(_) | Err(Errno::EPIPE) => Ok(()),
        Err(errno) => Err(SetupFailure::from_errno(BEFORE_PROGRAM, errno as i32)),
    }
}

impl RunningSandbox {
    /// Counts the sandbox among `failures` if it cannot be killed.
    pub(crate) fn counting_kills(self, failures: &KillFailures) -> Self {
        self.live.process.kill_count.count_among(failures);
        self
    }

    /// Sets the controls that the report names.
    pub(crate) fn enforcing(mut self, enforced: Enforced, not_enforced: Vec<String>) -> Self {
        self.enforced = enforced;
        self.not_enforced = not_enforced;
        self
    }

    /// Opens the way out that `service` serves, while nothing of a tenant's runs.
    pub(crate) fn open_egress(
        &mut self,
        service: Option<&dyn EgressService>,
    ) -> Result<(), SetupFailure> {
        let Some(service) = service else { return Ok(()) };
        let listener = match &mut self.live.resources.net {
            Some(net) => net.listen(),
            // Without privileges the namespace was cloned with the init.
            None => listener_of(self.live.process.pid),
        };
        if let (Ok(listener), Some(fs)) = (&listener, &self.live.resources.fs)
            && weakened::lacks(Wall::Port)
        {
            share(listener, fs.tenant()).map_err(|error| SetupFailure::from_io("share", &error))?;
        }
        let serving = listener.and_then(|listener| service.serve(listener));
        self.egress =
            Some(serving.map_err(|error| SetupFailure::from_io("egress socket", &error))?);
        Ok(())
    }

    /// Lets the program begin as soon as its sandbox is prepared, with the limits' CPU seconds.
    pub(crate) fn resume(&mut self) -> Result<(), SetupFailure> {
        release_program(&self.release, &self.limits)
    }

    /// As [`RunningSandbox::resume`], with this soft and hard limit of CPU seconds.
    pub(crate) fn release_with(&mut self, cpu_seconds: [u64; 2]) -> Result<(), SetupFailure> {
        send_words(&self.release, cpu_seconds)
    }

    /// As [`RunningSandbox::resume`], for a sandbox that was prepared without a program.
    pub(crate) fn resume_with(&mut self, program: SentProgram) -> Result<(), SetupFailure> {
        send_release(&self.release, &program.with_limits(release_words(&self.limits)))
    }

    /// Supervises a sandbox that ends where its program would begin; fails if it does not get there.
    pub(crate) fn run_trial(self) -> Result<(), SetupFailure> {
        let cancel =
            CancelToken::new().map_err(|error| SetupFailure::from_io("eventfd", &error))?;
        let tried = self.supervise(&Watch::of(cancel), &mut None);
        tried.map(drop).map_err(|why| why.into_failure("exec"))
    }

    /// Supervises the sandbox until it is dead and collected. Blocks for at most the wall-clock limit
    /// and the time that preparing and killing a sandbox may take.
    pub fn supervise(
        self,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        self.supervise_and(watch, sink, || {})
    }

    /// As [`RunningSandbox::supervise`]. Calls `look` once the program has run and no process of the
    /// sandbox is alive, while its file system still exists; never if the program did not start.
    pub fn supervise_and(
        self,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
        look: impl FnOnce(),
    ) -> Result<RunReport, NotStarted> {
        let Self { mut live, plan, limits, mut streams, prepare_began, .. } = self;
        let (process, SandboxResources { fs, group, workspace, .. }) =
            (&live.process, &live.resources);
        let listener_from = plan.watches_locks().then(|| self.release.as_fd());
        let tenant = fs.as_ref().map(SandboxFs::tenant);
        let locks = match self.locks {
            Some((listener, calls)) => LockWatch::received(listener, calls == 0, tenant),
            None => LockWatch::new(listener_from, tenant),
        };
        let mut parts = Supervised {
            process,
            program: None,
            group: group.as_ref(),
            status: self.status,
            locks,
            release: self.release.as_fd(),
            terminal: self.terminal.as_ref(),
            limits: &limits,
            released: self.released,
        };
        let observed = supervise(&mut parts, &mut streams, watch, sink);
        // Nothing goes out any more, and what did is on record.
        drop(self.egress);
        let made_no_socket = parts.locks.is_unused();
        let (stdout, stderr) = (streams.stdout.finish(), streams.stderr.finish());
        let dead_at = Instant::now();
        let rusage = process.reap().unwrap_or_default();
        let own_is_full = fs.as_ref().is_some_and(|fs| is_full(fs.as_fd()).unwrap_or(false));
        let disk_full =
            own_is_full || workspace.as_ref().is_some_and(|disk| disk.is_full().unwrap_or(false));
        let observed = observed.map_err(|error| SetupFailure::from_io("supervise", &error))?;
        // A program that ended well met no limit, so the counters of its limits are not read.
        let met_limits = !observed.ended_well();
        let has_run = observed.has_run();
        let mut remains = FinishedRun {
            observed,
            released: self.released,
            group: group.as_ref().map(|group| group.usage(met_limits)).unwrap_or_default(),
            rusage,
            disk_full,
            stdout,
            stderr,
            prepare_began,
            dead_at,
            looked: Duration::ZERO,
        };
        if has_run {
            let began = Instant::now();
            look();
            remains.looked = began.elapsed();
        } else {
            drop(look);
        }
        if let Some(net) = live.resources.net.as_mut().filter(|_| made_no_socket) {
            net.had_no_socket();
        }
        // Gives the resources back, or keeps them if the sandbox is not dead.
        drop(live);
        remains.into_report(&plan, &limits, self.enforced, self.not_enforced)
    }

    /// Waits until the sandbox is prepared.
    pub(crate) fn await_prepared(&mut self, deadline: Deadline) -> Result<(), SetupFailure> {
        let failed = |error: &std::io::Error| SetupFailure::from_io("stand", error);
        loop {
            // Checked first: the records of a dead init can still be read.
            let dead = self.is_dead();
            match self.status.next().map_err(|error| failed(&error))? {
                Some(Message::Prepared) => return Ok(()),
                Some(Message::Failed { step, errno }) => {
                    return Err(SetupFailure::from_errno(self.plan.step_name(step), errno));
                }
                Some(Message::Ready { .. } | Message::Ended { .. }) => {
                    return Err(SetupFailure::from_words("stand", "the program started too early"));
                }
                None if dead => return Err(SetupFailure::from_words("stand", "the init ended")),
                None if deadline.passed() => {
                    return Err(SetupFailure::from_errno("stand", libc::ETIMEDOUT));
                }
                None => self.wait_for_word(deadline).map_err(|errno| failed(&errno.into()))?,
            }
        }
    }

    fn wait_for_word(&self, deadline: Deadline) -> Result<(), Errno> {
        let millis = deadline.remaining().as_millis();
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        let process = PollFd::new(self.live.process.pidfd.as_fd(), PollFlags::POLLIN);
        let status = self.status.pipe().map(|pipe| PollFd::new(pipe, PollFlags::POLLIN));
        let mut both: Vec<PollFd<'_>> = [Some(process), status].into_iter().flatten().collect();
        match poll(&mut both, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        let mut process = [PollFd::new(self.live.process.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut process, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}
