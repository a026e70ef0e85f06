//! Builds the report of a run from what was observed (pure).

use std::time::{Duration, Instant};

use super::classify::{KillReason, OutcomeInput, classify};
use crate::cgroup::GroupUsage;
use crate::plan::ChildPlan;
use crate::plan::steps::Step;
use crate::plan::steps::mount::MountStep;
use crate::plan::steps::start::StartStep;
use crate::supervise::Released;
use crate::supervise::observation::Observation;
use crate::sys::Rusage;
use cofferdam_core::{
    CapturedStream, Enforced, Limits, NotStarted, RunReport, SetupFailure, Timings, Usage,
};

/// The step reported when a sandbox dies, or takes too long, before its program begins.
pub const BEFORE_PROGRAM: &str = "start init";

/// Cgroup version 1 kills a process that exceeds the memory limit during creation; version 2 may
/// refuse the memory instead.
const TOO_SMALL: &str = "the memory limit is too small for a sandbox";

/// The entry in `not_enforced` of a sandbox that has not died.
const NOT_DEAD: &str =
    "end: it was killed and is not dead yet; what it holds stays taken until it is";

/// Everything known about a sandbox after its end.
#[derive(Debug)]
pub struct FinishedRun {
    /// What the supervise loop learned.
    pub observed: Observation,
    /// Since when it counts, if its program was started before.
    pub released: Option<Released>,
    /// The usage that its cgroup reports.
    pub group: GroupUsage,
    /// The usage of its init and of all reaped processes.
    pub rusage: Rusage,
    /// Whether its file system was full.
    pub disk_full: bool,
    /// Standard output.
    pub stdout: CapturedStream,
    /// Standard error.
    pub stderr: CapturedStream,
    /// When its creation began.
    pub prepare_began: Instant,
    /// When all its processes were dead.
    pub dead_at: Instant,
    /// How long the caller inspected the file system after the end. Not part of the cleanup time.
    pub looked: Duration,
}

impl FinishedRun {
    /// Returns the report, or why the program never started.
    pub fn into_report(
        self,
        plan: &ChildPlan,
        limits: &Limits,
        enforced: Enforced,
        not_enforced: Vec<String>,
    ) -> Result<RunReport, NotStarted> {
        let started = self.started(plan)?;
        let ended = self.ended();
        let run = ended.saturating_duration_since(started);
        let timings = Timings {
            prepare: started.saturating_duration_since(self.prepare_began),
            run,
            cleanup: ended.elapsed().saturating_sub(self.looked),
        };
        let outcome = classify(&self.input(limits));
        let usage = self.usage(run);
        let mut not_enforced = not_enforced;
        if !self.observed.dead {
            not_enforced.push(NOT_DEAD.to_owned());
        }
        let Self { stdout, stderr, .. } = self;
        let standby = false;
        Ok(RunReport { outcome, stdout, stderr, usage, enforced, not_enforced, timings, standby })
    }

    /// When the program started, or why it did not.
    fn started(&self, plan: &ChildPlan) -> Result<Instant, NotStarted> {
        let observed = &self.observed;
        if let Some((step, errno)) = observed.failed {
            let too_small = errno == libc::ENOMEM && self.group.memory_refused > 0;
            return Err(match plan.step(step) {
                Some(Step::Start(StartStep::Exec(_) | StartStep::ExecSent)) => {
                    NotStarted::Exec { errno }
                }
                // The path of the program no longer exists, or is a directory.
                Some(Step::Mount(MountStep::AttachProgram { .. }))
                    if [libc::ENOENT, libc::ENOTDIR].contains(&errno) =>
                {
                    NotStarted::Exec { errno }
                }
                _ if too_small => SetupFailure::from_words(plan.step_name(step), TOO_SMALL).into(),
                _ => SetupFailure::from_errno(plan.step_name(step), errno).into(),
            });
        }
        if let (None, Some((KillReason::Cancelled, at))) = (observed.started, observed.killed) {
            // A cancelled run is reported as cancelled, not as a failed sandbox.
            return Ok(at);
        }
        if let (Some(Released { at, .. }), Some((_, ended))) = (self.released, observed.ended)
            && ended <= at
        {
            let words = "the prestarted program ended before its run";
            return Err(SetupFailure::from_words(BEFORE_PROGRAM, words).into());
        }
        observed.started.ok_or_else(|| {
            let reason = match (observed.setup_timed_out, self.group.oom_kills) {
                (true, _) => "took too long",
                (_, Some(1..)) => TOO_SMALL,
                _ => "died during set-up",
            };
            SetupFailure::from_words(BEFORE_PROGRAM, reason).into()
        })
    }

    /// When the program ended by itself, was killed, or died with its init.
    fn ended(&self) -> Instant {
        let by_itself = self.observed.ended.map(|(_, at)| at);
        by_itself.or(self.observed.killed.map(|(_, at)| at)).unwrap_or(self.dead_at)
    }

    fn input(&self, limits: &Limits) -> OutcomeInput {
        let Self { observed, group, .. } = self;
        let processes_at_limit = group.processes_refused > 0
            || group.processes_peak.is_some_and(|peak| peak >= limits.processes_max);
        OutcomeInput {
            status: observed.ended.map(|(status, _)| status),
            killed: observed.killed.map(|(reason, _)| reason),
            oom_kills: group.oom_kills.unwrap_or(0),
            processes_at_limit,
            disk_full: self.disk_full,
            cpu: self.cpu(),
            cpu_seconds_max: limits.cpu_seconds_max,
        }
    }

    fn cpu(&self) -> Duration {
        let before = self.released.map(|released| released.cpu).unwrap_or_default();
        self.group.cpu.unwrap_or(self.rusage.cpu).saturating_sub(before)
    }

    fn usage(&self, wall: Duration) -> Usage {
        let (memory_peak_bytes, memory_peak_source) = match &self.group.memory_peak {
            Some(peak) => (peak.bytes, peak.source.word()),
            None => (self.rusage.max_rss_bytes, "rusage"),
        };
        Usage {
            wall_ms: millis(wall),
            cpu_ms: millis(self.cpu()),
            memory_peak_bytes,
            memory_peak_source,
            processes_peak: self.group.processes_peak,
            oom_kills: self.group.oom_kills,
            stdout_bytes: self.stdout.bytes_total,
            stderr_bytes: self.stderr.bytes_total,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
