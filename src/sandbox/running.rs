//! A box that has been cloned, until it is a report.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Uid, fchown};

use super::box_fs::BoxFs;
use super::cgroup::{BoxGroup, GroupUsage};
use super::child::{ChildStart, DESCRIPTORS_MAX};
use super::classify::{Cut, Facts, classify};
use super::clone::{Cloned, clone_vfork};
use super::handshake::StatusPipe;
use super::plan::ChildPlan;
use super::pump::{Capture, Feed, pipe_from_box, pipe_into_box};
use super::step::Step;
use super::supervise::{Observed, Supervised, supervise};
use super::{init, kill, sys};
use crate::base::deadline::Deadline;
use crate::spec::{
    CapturedStream, Enforced, Limits, NotStarted, OutputSink, RunReport, SetupFailure, StdinSource,
    Stream, Timings, Usage, Watch,
};

/// The namespaces every box is cloned into; the init adds the cgroup's and the
/// program the user's.
pub const NAMESPACES: i32 = libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET;
/// How long an empty cgroup may take to go.
const GROUP_REMOVE_WAIT: Duration = Duration::from_secs(2);

/// All that a clone needs.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The steps.
    pub plan: ChildPlan,
    /// The clone flags.
    pub namespaces: i32,
    /// The box's file system, if it has one.
    pub fs: Option<BoxFs>,
    /// The box's cgroup.
    pub group: Option<BoxGroup>,
    /// Further descriptors the plan refers to, after the `tasks` files.
    pub extra: Vec<RawFd>,
    /// Standard input.
    pub stdin: StdinSource,
    /// The bounds.
    pub limits: &'a Limits,
    /// When preparation began.
    pub prepare_began: Instant,
}

/// A box whose init is on its way.
#[derive(Debug)]
pub struct Running {
    process: Cloned,
    plan: ChildPlan,
    fs: Option<BoxFs>,
    group: Option<BoxGroup>,
    status: StatusPipe,
    stdout: Capture,
    stderr: Capture,
    feed: Option<Feed>,
    limits: Limits,
    prepare_began: Instant,
    enforced: Enforced,
    not_enforced: Vec<String>,
}

impl Running {
    /// Clones the box and hands it its plan.
    pub(super) fn launch(launch: Launch<'_>) -> Result<Self, SetupFailure> {
        let failed =
            |step: &'static str| move |error: io::Error| SetupFailure::from_io(step, &error);
        let (status, status_end) = pipe_from_box().map_err(failed("status pipe"))?;
        let (stdout, stdout_end) = pipe_from_box().map_err(failed("stdout pipe"))?;
        let (stderr, stderr_end) = pipe_from_box().map_err(failed("stderr pipe"))?;
        let (feed, stdin_end) = open_stdin(launch.stdin).map_err(failed("stdin"))?;
        if let Some(tenant) = launch.fs.as_ref().map(BoxFs::tenant) {
            // Never the null device: that is the host's.
            let stdin_pipe = feed.is_some().then_some(&stdin_end);
            for pipe in [&stdout_end, &stderr_end].into_iter().chain(stdin_pipe) {
                give_to_tenant(pipe, tenant).map_err(failed("pipe owner"))?;
            }
        }
        let plan_file = write_plan(&launch.plan)?;
        // In the order of the init's descriptors: 0 to 4 are fixed, then what the plan counts on.
        let mut descriptors = vec![
            stdin_end.as_raw_fd(),
            stdout_end.as_raw_fd(),
            stderr_end.as_raw_fd(),
            status_end.as_raw_fd(),
            plan_file.as_raw_fd(),
        ];
        descriptors.extend(launch.fs.as_ref().map(|fs| fs.as_fd().as_raw_fd()));
        descriptors
            .extend(launch.group.iter().flat_map(BoxGroup::task_files).map(AsRawFd::as_raw_fd));
        descriptors.extend(launch.extra);
        if descriptors.len() > DESCRIPTORS_MAX {
            return Err(SetupFailure::from_words("descriptors", "too many for one box"));
        }
        let init = init::program().map_err(failed("init program"))?;
        let start = ChildStart { descriptors: &descriptors, init: init.as_raw_fd() };
        let into = launch.group.as_ref().and_then(BoxGroup::clone_into);
        let process = clone_vfork(launch.namespaces, into, &start).map_err(failed("clone"))?;
        Ok(Self {
            process,
            plan: launch.plan,
            fs: launch.fs,
            group: launch.group,
            status: StatusPipe::new(status),
            stdout: Capture::new(Stream::Stdout, stdout, launch.limits.output_bytes_max),
            stderr: Capture::new(Stream::Stderr, stderr, launch.limits.output_bytes_max),
            feed,
            limits: launch.limits.clone(),
            prepare_began: launch.prepare_began,
            enforced: Enforced::default(),
            not_enforced: Vec::new(),
        })
    }

    /// The init's pid here.
    pub(super) fn pid(&self) -> i32 {
        self.process.pid
    }

    /// Ends a process that was wanted for its namespaces only.
    pub(super) fn discard(self) {
        kill::end(&self.process, self.group.as_ref());
        if kill::wait_dead(&self.process, Deadline::after(kill::KILL_WAIT)) {
            let _ = sys::reap(self.process.pid);
        }
    }

    /// Says under which controls the box runs.
    pub(super) fn enforcing(mut self, enforced: Enforced, not_enforced: Vec<String>) -> Self {
        self.enforced = enforced;
        self.not_enforced = not_enforced;
        self
    }

    /// Looks after the box until nothing of it is left. Blocks for at most the
    /// wall-clock limit and what making and killing a box may take.
    pub fn supervise(
        self,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let Self {
            process,
            plan,
            fs,
            group,
            status,
            stdout,
            stderr,
            feed,
            limits,
            prepare_began,
            enforced,
            not_enforced,
        } = self;
        let mut parts = Supervised {
            process: &process,
            group: group.as_ref(),
            status,
            stdout,
            stderr,
            feed,
            limits: &limits,
        };
        let observed = supervise(&mut parts, watch, &mut sink);
        let (stdout, stderr) = (parts.stdout.finish(), parts.stderr.finish());
        let dead_at = Instant::now();
        let rusage = sys::reap(process.pid).unwrap_or_default();
        let disk_full = fs.as_ref().is_some_and(|fs| fs.is_full().unwrap_or(false));
        let group_usage = group.as_ref().map(BoxGroup::usage).unwrap_or_default();
        drop(fs);
        if let Some(Err(failure)) =
            group.map(|mut group| group.remove(Deadline::after(GROUP_REMOVE_WAIT)))
        {
            log::error!("{failure}");
        }
        let observed = observed.map_err(|error| SetupFailure::from_io("supervise", &error))?;
        let started = started(&observed, &plan, group_usage.oom_kills)?;
        let cpu = group_usage.cpu.unwrap_or(rusage.cpu);
        let outcome = classify(&Facts {
            status: observed.ended.map(|(status, _)| status),
            cut: observed.cut.map(|(cut, _)| cut),
            oom_kills: group_usage.oom_kills,
            processes_at_limit: processes_at_limit(&group_usage, &limits),
            disk_full,
            cpu,
            cpu_seconds_max: limits.cpu_seconds_max,
        });
        let ended =
            observed.ended.map(|(_, at)| at).or(observed.cut.map(|(_, at)| at)).unwrap_or(dead_at);
        let run = ended.saturating_duration_since(started);
        let timings = Timings {
            prepare: started.saturating_duration_since(prepare_began),
            run,
            cleanup: ended.elapsed(),
        };
        let usage = usage(&group_usage, &rusage, cpu, run, [&stdout, &stderr]);
        Ok(RunReport { outcome, stdout, stderr, usage, enforced, not_enforced, timings })
    }
}

/// When the program started, or why it did not.
fn started(observed: &Observed, plan: &ChildPlan, oom_kills: u64) -> Result<Instant, NotStarted> {
    if let Some((step, errno)) = observed.failed {
        let name = plan.step_name(step);
        return Err(
            if matches!(plan.program.last(), Some(exec @ Step::Exec { .. }) if exec.name() == name)
            {
                NotStarted::Exec { errno }
            } else {
                SetupFailure::from_errno(name, errno).into()
            },
        );
    }
    if let (None, Some((Cut::Cancelled, at))) = (observed.started, observed.cut) {
        // Whoever asked for the end gets one, not a fault of the box.
        return Ok(at);
    }
    observed.started.ok_or_else(|| {
        let reason = match (observed.setup_timed_out, oom_kills) {
            (true, _) => "took too long",
            (_, 1..) => "the memory limit is too small for a box",
            _ => "died during set-up",
        };
        SetupFailure::from_words("start init", reason).into()
    })
}

fn processes_at_limit(usage: &GroupUsage, limits: &Limits) -> bool {
    usage.processes_refused > 0
        || usage.processes_peak.is_some_and(|peak| peak >= limits.processes_max)
}

fn usage(
    group: &GroupUsage,
    rusage: &sys::Rusage,
    cpu: Duration,
    wall: Duration,
    streams: [&CapturedStream; 2],
) -> Usage {
    let (memory_peak_bytes, memory_peak_source) = match &group.memory_peak {
        Some(peak) => (peak.bytes, peak.source.word()),
        None => (rusage.max_rss_bytes, "rusage"),
    };
    let [stdout, stderr] = streams;
    Usage {
        wall_ms: millis(wall),
        cpu_ms: millis(cpu),
        memory_peak_bytes,
        memory_peak_source,
        processes_peak: group.processes_peak,
        stdout_bytes: stdout.bytes_total,
        stderr_bytes: stderr.bytes_total,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The program's stdin and what feeds it, if anything does.
fn open_stdin(source: StdinSource) -> io::Result<(Option<Feed>, OwnedFd)> {
    if let StdinSource::Null = source {
        return Ok((None, std::fs::File::open("/dev/null")?.into()));
    }
    let (ours, theirs) = pipe_into_box()?;
    Ok((Some(Feed::new(source, ours)), theirs))
}

/// Makes the tenant the owner of `pipe`, so that it can open `/dev/stdout` and
/// its like, which are the same pipes by name.
fn give_to_tenant(pipe: &OwnedFd, tenant: u32) -> io::Result<()> {
    Ok(fchown(pipe, Some(Uid::from_raw(tenant)), Some(Gid::from_raw(tenant)))?)
}

/// The plan as a file in memory for the init to map.
fn write_plan(plan: &ChildPlan) -> Result<OwnedFd, SetupFailure> {
    let encoded =
        plan.encode().map_err(|error| SetupFailure::from_words("plan", error.to_string()))?;
    let write = || -> io::Result<OwnedFd> {
        let file = sys::memory_file(c"cofferdam-plan", false)?;
        nix::sys::uio::pwrite(&file, &encoded.calls, 0)?;
        nix::sys::uio::pwrite(&file, &encoded.data, super::encode::EncodedPlan::data_offset())?;
        Ok(file)
    };
    write().map_err(|error| SetupFailure::from_io("plan", &error))
}
