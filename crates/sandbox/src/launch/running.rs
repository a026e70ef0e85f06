//! A box that has been cloned, until it is a report.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::write;

use super::handshake::StatusPipe;
use crate::files::box_fs::BoxFs;
use crate::init::wire::RELEASE_WORDS;
use crate::locks::LockWatch;
use crate::plan::ChildPlan;
use crate::supervise::cleanup::live_sandbox::LiveSandbox;
use crate::supervise::cleanup::queue::SandboxResources;
use crate::supervise::io::StdioPipes;
use crate::supervise::kill_count::KillFailures;
use crate::supervise::report::FinishedRun;
use crate::supervise::{Supervised, supervise};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{Enforced, Limits, NotStarted, OutputSink, RunReport, SetupFailure, Watch};

/// A box whose init is on its way. Dropped unsupervised, it is killed.
#[derive(Debug)]
pub struct Running {
    pub(crate) live: LiveSandbox,
    pub(crate) plan: ChildPlan,
    pub(crate) status: StatusPipe,
    pub(crate) release: OwnedFd,
    pub(crate) streams: StdioPipes,
    pub(crate) limits: Limits,
    pub(crate) prepare_began: Instant,
    pub(crate) enforced: Enforced,
    pub(crate) not_enforced: Vec<String>,
}

impl Running {
    /// Has the box counted among `failures` if it will not die.
    pub(crate) fn counting_kills(self, failures: &KillFailures) -> Self {
        self.live.process.kill_count.count_among(failures);
        self
    }

    /// Says under which controls the box runs.
    pub(crate) fn enforcing(mut self, enforced: Enforced, not_enforced: Vec<String>) -> Self {
        self.enforced = enforced;
        self.not_enforced = not_enforced;
        self
    }

    /// Lets the program begin as soon as its box is made, with the limits' CPU seconds.
    pub(crate) fn let_go(&mut self) -> Result<(), SetupFailure> {
        let soft = self.limits.cpu_seconds_max;
        // Were both the same, the kernel would send SIGKILL and never SIGXCPU, and nothing would
        // tell that end from any other.
        let words: [u64; RELEASE_WORDS] = [soft, soft.saturating_add(1)];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // Of an empty pipe, so this never waits, and of a few bytes, so it is never cut short.
        match write(&self.release, &bytes) {
            // A box that failed before: its own word says why.
            Ok(_) | Err(Errno::EPIPE) => Ok(()),
            Err(errno) => Err(SetupFailure::from_errno("release", errno as i32)),
        }
    }

    /// Looks after a box that ends where a program would begin; says whether it got there.
    pub(crate) fn try_out(self) -> Result<(), SetupFailure> {
        let cancel =
            CancelToken::new().map_err(|error| SetupFailure::from_io("eventfd", &error))?;
        let tried = self.supervise(&Watch { cancel, client: None }, &mut None);
        tried.map(drop).map_err(|why| why.into_failure("exec"))
    }

    /// Looks after the box until nothing of it is left. Blocks for at most the
    /// wall-clock limit and what making and killing a box may take.
    pub fn supervise(
        self,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        self.supervise_and(watch, sink, || {})
    }

    /// As [`Running::supervise`]; `look` is called once the program has run and nothing of the
    /// box is alive, while its file system is still there. Never where the program did not start.
    pub fn supervise_and(
        self,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
        look: impl FnOnce(),
    ) -> Result<RunReport, NotStarted> {
        let Self { mut live, plan, limits, mut streams, prepare_began, .. } = self;
        let (process, SandboxResources { fs, group, .. }) = (&live.process, &live.resources);
        let listener_from = plan.watches_locks().then(|| self.release.as_fd());
        let mut parts = Supervised {
            process,
            group: group.as_ref(),
            status: self.status,
            locks: LockWatch::new(listener_from, fs.as_ref().map(BoxFs::tenant)),
            limits: &limits,
        };
        let observed = supervise(&mut parts, &mut streams, watch, sink);
        let made_no_socket = parts.locks.is_unused();
        let (stdout, stderr) = (streams.stdout.finish(), streams.stderr.finish());
        let dead_at = Instant::now();
        let rusage = process.reap().unwrap_or_default();
        let disk_full = fs.as_ref().is_some_and(|fs| fs.is_full().unwrap_or(false));
        let observed = observed.map_err(|error| SetupFailure::from_io("supervise", &error))?;
        // A program that ended well met no limit that mattered: nobody will ask for them.
        let met_limits = !observed.ended_well();
        let has_run = observed.has_run();
        let mut remains = FinishedRun {
            observed,
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
        // Given back, or kept where it is not dead.
        drop(live);
        remains.into_report(&plan, &limits, self.enforced, self.not_enforced)
    }
}
