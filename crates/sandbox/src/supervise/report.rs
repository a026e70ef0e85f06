//! What was observed of a box, put together into its report (pure).

use std::time::{Duration, Instant};

use super::classify::{Cut, Facts, classify};
use crate::cgroup::GroupUsage;
use crate::plan::ChildPlan;
use crate::plan::steps::Step;
use crate::plan::steps::mount::MountStep;
use crate::plan::steps::start::StartStep;
use crate::supervise::Observed;
use crate::sys::Rusage;
use cofferdam_core::{
    CapturedStream, Enforced, Limits, NotStarted, RunReport, SetupFailure, Timings, Usage,
};

/// The step of a box that died, or took too long, before its program began.
pub const BEFORE_PROGRAM: &str = "start init";

/// Version 1 kills what asks for too much while a box is made; version 2 may refuse it instead.
const TOO_SMALL: &str = "the memory limit is too small for a box";

/// What a report says of a box that outlived it.
const NOT_DEAD: &str =
    "end: it was killed and is not dead yet; what it holds stays taken until it is";

/// What is left to know of a dead box.
#[derive(Debug)]
pub struct Remains {
    /// What its loop learned.
    pub observed: Observed,
    /// What its cgroup says it used.
    pub group: GroupUsage,
    /// What its init and all that was reaped used.
    pub rusage: Rusage,
    /// Whether its file system was full.
    pub disk_full: bool,
    /// Standard output.
    pub stdout: CapturedStream,
    /// Standard error.
    pub stderr: CapturedStream,
    /// When its preparation began.
    pub prepare_began: Instant,
    /// When nothing of it was alive any more.
    pub dead_at: Instant,
    /// How long somebody looked at what it left, which is no part of its end.
    pub looked: Duration,
}

impl Remains {
    /// The report, or why there is none: the program never started.
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
        let outcome = classify(&self.facts(limits));
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
                Some(Step::Start(StartStep::Exec(_))) => NotStarted::Exec { errno },
                // There is nothing at its path any more, or a directory.
                Some(Step::Mount(MountStep::AttachProgram { .. }))
                    if [libc::ENOENT, libc::ENOTDIR].contains(&errno) =>
                {
                    NotStarted::Exec { errno }
                }
                _ if too_small => SetupFailure::from_words(plan.step_name(step), TOO_SMALL).into(),
                _ => SetupFailure::from_errno(plan.step_name(step), errno).into(),
            });
        }
        if let (None, Some((Cut::Cancelled, at))) = (observed.started, observed.cut) {
            // Whoever asked for the end gets one, not a fault of the box.
            return Ok(at);
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

    /// When the program ended, by itself, by us, or with its init.
    fn ended(&self) -> Instant {
        let by_itself = self.observed.ended.map(|(_, at)| at);
        by_itself.or(self.observed.cut.map(|(_, at)| at)).unwrap_or(self.dead_at)
    }

    fn facts(&self, limits: &Limits) -> Facts {
        let Self { observed, group, .. } = self;
        let processes_at_limit = group.processes_refused > 0
            || group.processes_peak.is_some_and(|peak| peak >= limits.processes_max);
        Facts {
            status: observed.ended.map(|(status, _)| status),
            cut: observed.cut.map(|(cut, _)| cut),
            oom_kills: group.oom_kills.unwrap_or(0),
            processes_at_limit,
            disk_full: self.disk_full,
            cpu: self.cpu(),
            cpu_seconds_max: limits.cpu_seconds_max,
        }
    }

    fn cpu(&self) -> Duration {
        self.group.cpu.unwrap_or(self.rusage.cpu)
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
