//! One program of a sandbox that lasts, from its request to its report.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::socket::SockType;

use super::left::LeftProgram;
use super::requests::RequestFailure;
use super::{ProgramEntry, ProgramLabel, ReadyGroup, SharedSandbox, SharedState};
use crate::cgroup::SandboxGroup;
use crate::files::sandbox_fs::is_full;
use crate::launch::handshake::StatusPipe;
use crate::launch::plan_context::count;
use crate::launch::running::release_program;
use crate::launch::sandbox_host::SandboxHost;
use crate::launch::stdio::{SandboxStdio, Terminal};
use crate::launch::{socket_pair, write_plan};
use crate::locks::LockWatch;
use crate::plan::ChildPlan;
use crate::plan::rootfs::c_string;
use crate::plan::scheduler_slice;
use crate::plan::served::{ServedInput, build_served};
use crate::supervise::io::StdioPipes;
use crate::supervise::io::output_capture::OutputBound;
use crate::supervise::io::pipe::pipe_from_sandbox;
use crate::supervise::report::FinishedRun;
use crate::supervise::{Supervised, kill, supervise};
use crate::sys;
use crate::sys::Rusage;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    Enforced, Limits, NotStarted, OutputSink, ProgramFile, RunReport, RunSpec, SetupFailure,
    StdinSource, Stream, Watch,
};

/// What refuses to clone a process into a group of version 2: an older kernel, a filter around the
/// service. The process then moves itself.
const CANNOT_CLONE_INTO: [i32; 6] =
    [libc::ENOSYS, libc::EACCES, libc::EPERM, libc::ENOENT, libc::EINVAL, libc::EOPNOTSUPP];

/// A program whose process waits to be resumed.
#[derive(Debug)]
struct StartedProgram {
    place: ProgramPlace,
    pidfd: OwnedFd,
    status: StatusPipe,
    release: OwnedFd,
    streams: StdioPipes,
    terminal: Option<Arc<OwnedFd>>,
    plan: ChildPlan,
    limits: Limits,
}

/// The place of a program in its sandbox. Dropped before it is given up, all that the program started
/// is killed.
#[derive(Debug)]
struct ProgramPlace {
    shared: Arc<SharedState>,
    number: u64,
    group: Arc<SandboxGroup>,
    is_given_up: bool,
}

/// What a request for a program is made of.
#[derive(Debug)]
struct ProgramRequest<'a> {
    host: &'a SandboxHost,
    shared: &'a SharedState,
    spec: &'a RunSpec,
    /// Whether the process moves itself into its group of version 2.
    joins: bool,
}

/// A process that PID 1 has cloned.
#[derive(Debug)]
struct ClonedProgram {
    pidfd: OwnedFd,
    status: StatusPipe,
    release: OwnedFd,
    plan: ChildPlan,
}

impl SandboxHost {
    /// Runs the program of `spec` in `shared` on this thread. What it leaves goes on.
    ///
    /// # Errors
    /// The program did not start.
    pub fn run_shared(
        &self,
        shared: &SharedSandbox,
        mut spec: RunSpec,
        label: ProgramLabel,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let began = Instant::now();
        if spec.argv.is_empty() {
            return Err(SetupFailure::from_words("exec", "no program given").into());
        }
        if spec.egress.is_some() {
            let words = "a sandbox that lasts has its socket from its start";
            return Err(SetupFailure::from_words("egress socket", words).into());
        }
        let not_enforced = self.clamp(&mut spec.limits);
        let started = self.start_in(&shared.0, spec, label)?;
        started.supervise(watch, sink, began, (self.enforced(), not_enforced))
    }

    fn start_in(
        &self,
        shared: &Arc<SharedState>,
        mut spec: RunSpec,
        label: ProgramLabel,
    ) -> Result<StartedProgram, SetupFailure> {
        let all = shared.all().filter(|_| shared.is_alive());
        let all = all.ok_or_else(|| SetupFailure::from_words("start", "the sandbox has ended"))?;
        if !matches!(spec.program, ProgramFile::Named) {
            let words = "a sandbox that lasts executes named programs alone";
            return Err(SetupFailure::from_words("exec", words));
        }
        let ReadyGroup { number, mut group, is_watched } = shared.take_group(&all)?;
        group.set_limits(&spec.limits)?;
        let terminal = self.terminal(shared, &spec)?;
        let master = terminal.as_ref().map(|terminal| Arc::clone(&terminal.master));
        let joins = shared.joins_itself.load(Ordering::Relaxed);
        let bounds = OutputBound::of(&spec.limits, spec.excess_output);
        let has_stdin = !matches!(spec.stdin, StdinSource::Null);
        let stdin = std::mem::take(&mut spec.stdin);
        let stdio = match terminal {
            Some(terminal) => SandboxStdio::terminal(terminal, stdin, bounds)?,
            None => SandboxStdio::pipes(stdin, bounds, Some(shared.tenant))?,
        };
        let request = ProgramRequest { host: self, shared, spec: &spec, joins };
        let cloned = request.clone_program(&group, &stdio, has_stdin)?;
        group.close_task_files();
        let group = Arc::new(group);
        let entry = ProgramEntry { group: Arc::clone(&group), label, has_ended: false, is_watched };
        let place = ProgramPlace { shared: Arc::clone(shared), number, group, is_given_up: false };
        shared.add(number, entry)?;
        let ClonedProgram { pidfd, status, release, plan } = cloned;
        release_program(&release, &spec.limits)?;
        let (streams, limits) = (stdio.streams, spec.limits);
        Ok(StartedProgram {
            place,
            pidfd,
            status,
            release,
            streams,
            terminal: master,
            plan,
            limits,
        })
    }

    fn terminal(
        &self,
        shared: &SharedState,
        spec: &RunSpec,
    ) -> Result<Option<Terminal>, SetupFailure> {
        let make = |size| Terminal::in_mount(&shared.terminals, size);
        spec.terminal.map(make).transpose()
    }
}

impl ProgramRequest<'_> {
    /// Has PID 1 clone the process, into its group of version 2 where the host allows it.
    fn clone_program(
        mut self,
        group: &SandboxGroup,
        stdio: &SandboxStdio,
        has_stdin: bool,
    ) -> Result<ClonedProgram, SetupFailure> {
        loop {
            match self.try_clone(group, stdio, has_stdin) {
                Ok(cloned) => return Ok(cloned),
                Err(RequestFailure::Refused(errno))
                    if !self.joins && CANNOT_CLONE_INTO.contains(&errno) =>
                {
                    self.joins = true;
                    self.shared.joins_itself.store(true, Ordering::Relaxed);
                }
                Err(RequestFailure::Refused(errno)) => {
                    return Err(SetupFailure::from_errno("clone", errno));
                }
                Err(RequestFailure::Failed(failure)) => return Err(failure),
                Err(RequestFailure::Broken(failure)) => {
                    // It would answer the next request with the answer of this one.
                    let init = self.shared.process.pidfd.as_fd();
                    if let Err(error) = sys::signal_process(init, libc::SIGKILL) {
                        log::warn!("kill sandbox: {error}");
                    }
                    return Err(failure);
                }
            }
        }
    }

    fn try_clone(
        &self,
        group: &SandboxGroup,
        stdio: &SandboxStdio,
        has_stdin: bool,
    ) -> Result<ClonedProgram, RequestFailure> {
        let failed = |step: &'static str| {
            move |error: std::io::Error| RequestFailure::Failed(SetupFailure::from_io(step, &error))
        };
        let into = group.clone_into().filter(|_| !self.joins);
        let entries =
            if self.joins { group.entries().map_err(RequestFailure::Failed)? } else { Vec::new() };
        let tasks: Vec<RawFd> = match self.joins {
            true => entries.iter().map(AsRawFd::as_raw_fd).collect(),
            false => {
                let files = group.task_files().iter().chain(group.program_task_files());
                files.map(AsRawFd::as_raw_fd).collect()
            }
        };
        let plan = self.plan(count(tasks.len()), has_stdin);
        let plan_file = write_plan(&plan).map_err(RequestFailure::Failed)?;
        let (status, status_end) = pipe_from_sandbox().map_err(failed("status pipe"))?;
        let (release_end, release) =
            socket_pair(SockType::Stream).map_err(failed("release socket"))?;
        let mut descriptors = stdio.descriptors().to_vec();
        descriptors.extend([&status_end, &plan_file, &release_end].map(AsRawFd::as_raw_fd));
        descriptors.extend(tasks);
        descriptors.extend(into.map(|group| group.as_raw_fd()));
        let init = self.shared.process.pidfd.as_fd();
        let pidfd = self.shared.requests.start(&descriptors, into.is_some(), init)?;
        Ok(ClonedProgram { pidfd, status: StatusPipe::new(status), release, plan })
    }

    fn plan(&self, task_files: i32, has_stdin: bool) -> ChildPlan {
        let Self { host, spec, .. } = self;
        let layout = &host.plans.root.layout;
        let has_null = layout.devices.iter().any(|node| node.target.as_c_str() == c"dev/null");
        build_served(&ServedInput {
            filter: host.plans.profile.filter_for(false),
            argv: &spec.argv,
            without_shell: spec.without_shell.as_deref(),
            env: &spec.env,
            workdir: &c_string(spec.workdir.as_os_str()),
            limits: &spec.limits,
            uid_processes_max: host.plans.hard_limits.processes(),
            task_files,
            has_terminal: spec.terminal.is_some(),
            null_stdin: has_null && !has_stdin && spec.terminal.is_none(),
            short_slices: scheduler_slice::has_short_slice(),
        })
    }
}

impl StartedProgram {
    /// Supervises the program until its main process has ended, or all of it is killed.
    fn supervise(
        self,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
        began: Instant,
        (enforced, not_enforced): (Enforced, Vec<String>),
    ) -> Result<RunReport, NotStarted> {
        let Self { place, pidfd, status, release, mut streams, terminal, plan, limits } = self;
        let shared = Arc::clone(&place.shared);
        let refused = || shared.all().map_or(0, |all| all.processes_refused());
        let refused_before = refused();
        let mut parts = Supervised {
            process: &shared.process,
            program: Some(pidfd.as_fd()),
            group: Some(&place.group),
            status,
            locks: LockWatch::of(None, shared.tenant),
            release: release.as_fd(),
            terminal: terminal.as_ref(),
            limits: &limits,
            released: None,
        };
        let observed = supervise(&mut parts, &mut streams, watch, &mut sink);
        let dead_at = Instant::now();
        let (stdout, stdout_pipe) = streams.stdout.finish_open();
        let (stderr, stderr_pipe) = streams.stderr.finish_open();
        let disk_full = shared.disks.iter().any(|disk| is_full(disk.as_fd()).unwrap_or(false));
        let observed = observed.map_err(|error| SetupFailure::from_io("supervise", &error))?;
        let met_limits = !observed.ended_well();
        let mut group = place.group.usage(met_limits);
        if met_limits {
            // The limit of all programs together.
            group.processes_refused += refused().saturating_sub(refused_before);
        }
        let remains = FinishedRun {
            released: None,
            observed,
            group,
            rusage: Rusage::default(),
            disk_full,
            stdout,
            stderr,
            prepare_began: began,
            dead_at,
            looked: Duration::ZERO,
        };
        let pipes = [(Stream::Stdout, stdout_pipe), (Stream::Stderr, stderr_pipe)];
        let pipes = pipes.into_iter().filter_map(|(stream, pipe)| Some((stream, pipe?))).collect();
        let sink = sink.and_then(OutputSink::after_program);
        place.give_up(|number, group| LeftProgram::new(number, group, pipes, sink));
        remains.into_report(&plan, &limits, enforced, not_enforced)
    }
}

impl ProgramPlace {
    /// Hands the place to the keeper, with the processes that the program left.
    fn give_up(mut self, left: impl FnOnce(u64, Arc<SandboxGroup>) -> LeftProgram) {
        self.is_given_up = true;
        self.shared.hand_over(left(self.number, Arc::clone(&self.group)));
    }
}

impl Drop for ProgramPlace {
    fn drop(&mut self) {
        if self.is_given_up {
            return;
        }
        if !kill::end_group(&self.group, Deadline::after(kill::KILL_WAIT)) {
            log::error!("a program of a sandbox is killed and not dead yet");
        }
        let (number, group) = (self.number, Arc::clone(&self.group));
        self.shared.hand_over(LeftProgram::new(number, group, Vec::new(), None));
    }
}
