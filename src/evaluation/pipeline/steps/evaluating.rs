//! An evaluation in progress, and what its steps have in common.

use std::sync::Arc;
use std::time::Instant;

use crate::egress::EgressLog;
use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::cache::is_raised;
use crate::evaluation::pipeline::call::EvaluationCall;
use crate::evaluation::pipeline::ending::EarlyEnd;
use crate::evaluation::pipeline::output::{ObserverQueue, OutputRules};
use crate::evaluation::pipeline::settings::{PipelineParts, PipelineSettings};
use crate::evaluation::result::{EvaluationResult, EvaluationStep, PhaseEntry};
use crate::evaluation::task::Task;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{RunReport, SetupFailure, Watch};

/// An evaluation in progress.
pub struct Evaluating<'a> {
    /// What holds for every evaluation.
    pub settings: &'a PipelineSettings,
    /// What it works with.
    pub parts: &'a PipelineParts,
    /// What is evaluated.
    pub call: EvaluationCall<'a>,
    /// Ends it.
    pub watch: &'a Watch,
    /// When it has to be over.
    pub deadline: Deadline,
    /// Who is told.
    pub queue: &'a ObserverQueue<'a>,
    /// What becomes of its output.
    pub outputs: OutputRules,
    /// What its sandboxes asked for.
    pub egress: Arc<EgressLog>,
    /// How many of these requests were told.
    pub egress_told: usize,
    /// What is known.
    pub result: EvaluationResult,
}

/// What a step has made.
pub struct SteppedValue<T> {
    /// The value.
    pub value: T,
    /// Whether it was there before.
    pub cached: bool,
}

impl Evaluating<'_> {
    /// Whose caches are used.
    pub fn cache_owner(&self) -> &str {
        if self.settings.cache_shared { "" } else { self.call.owner }
    }

    /// Whether it was cancelled, or its time is over.
    pub fn is_over(&self) -> bool {
        is_raised(&self.watch.cancel) || self.deadline.passed()
    }

    /// What the sandboxes of `task` may use: the service's bounds, or less if the task asks for less.
    pub fn bounds(&self, task: &Task) -> PhaseBounds {
        self.settings.bounds.within(task.bounds)
    }

    /// Does one step, and notes how long it took and what it reached.
    ///
    /// # Errors
    /// Those of `work`. Whatever fails once the evaluation is over has failed because of that.
    pub fn step<T>(
        &mut self,
        step: EvaluationStep,
        work: impl FnOnce(&mut Self) -> Result<SteppedValue<T>, EarlyEnd>,
    ) -> Result<T, EarlyEnd> {
        self.result.step = step;
        self.queue.step(step);
        self.queue.snapshot(&self.result);
        let began = Instant::now();
        let done = if self.is_over() { Err(self.over(step)) } else { work(self) };
        let done = done.map_err(|early| if self.is_over() { self.over(step) } else { early });
        let limit = match &done {
            Ok(_) => self.met_limit(step),
            Err(early) => early.failure.limit,
        };
        let cached = done.as_ref().is_ok_and(|done| done.cached);
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.result.phases.push(PhaseEntry { step, duration_ms, cached, limit });
        self.tell_egress();
        done.map(|done| done.value)
    }

    /// The limit that ended the program of a step whose work goes on.
    fn met_limit(&self, step: EvaluationStep) -> Option<&'static str> {
        let agent = self.result.agent.as_ref().filter(|_| step == EvaluationStep::RunningAgent);
        agent.and_then(|agent| agent.limit)
    }

    /// How it ends because it was cancelled, or its time is over.
    pub fn over(&self, step: EvaluationStep) -> EarlyEnd {
        if is_raised(&self.watch.cancel) {
            EarlyEnd::cancelled(step)
        } else {
            EarlyEnd::expired(step)
        }
    }

    /// Notes which controls held for a sandbox.
    pub fn note_controls(&mut self, report: &RunReport) {
        self.result.enforced = Some(report.enforced.clone());
        self.result.not_enforced.clone_from(&report.not_enforced);
    }

    fn tell_egress(&mut self) {
        self.result.egress = self.egress.snapshot();
        for record in self.result.egress.iter().skip(self.egress_told) {
            self.queue.egress(record.clone());
        }
        self.egress_told = self.result.egress.len();
    }
}

/// A sandbox or a file system of `step` failed.
pub fn sandbox_failed(step: EvaluationStep) -> impl Fn(SetupFailure) -> EarlyEnd {
    move |failure| EarlyEnd::of_sandbox(step, &failure)
}
