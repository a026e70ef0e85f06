//! One attempt at a Cell: source, start, provision, setup, agent, grade.

use std::time::{Duration, Instant};

use serde_json::json;

use super::environments::ProvisionedCell;
use super::error::{TrialStep, TrialStop};
use super::host::TrialHost;
use super::recorded::RecordedCell;
use super::settings::EnvChanges;
use super::sources::SourceBase;
use crate::case::cell::{AgentDifference, AgentSeat, TrialCell};
use crate::case::file::Case;
use crate::case::grade::{GradeInputs, GraderScore, combine};
use crate::case::harness::{
    ChosenHarness, HarnessCall, HarnessEnd, HarnessPrompt, HarnessTrace, TRACE_BYTES_MAX,
};
use crate::case::provision::ProvisionedEnvironment;
use crate::case::run::{
    AgentEntry, CaseRunError, CellEnd, CellFile, CellFilesDir, CellLog, CellStatus, ExecutorEntry,
    PlannedCell, ProvisionEntry,
};
use crate::evaluation::cache::is_raised;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::weakened::{self, Wall};

/// How long the comparison of the agent's work may take.
const DIFFERENCE_TIMEOUT: Duration = Duration::from_mins(2);

/// One attempt at a Cell.
#[derive(Debug)]
pub struct Trial<'a> {
    /// What all Cells of the run share.
    pub host: &'a TrialHost,
    /// Which Cell it is.
    pub planned: &'a PlannedCell,
    /// Where its files go.
    pub files: &'a CellFilesDir,
    /// Where its commands are recorded, if anywhere.
    pub commands: Option<&'a CellLog>,
    /// Ends it.
    pub stop: &'a CancelToken,
    /// What is known.
    pub end: CellEnd,
}

impl Trial<'_> {
    /// Does all steps.
    ///
    /// # Errors
    /// Why it did not come to a grade. What is known until then is in `end`.
    pub fn run(&mut self) -> Result<(), TrialStop> {
        let host = self.host;
        let source = self.step(TrialStep::Source, |trial| host.source(trial.stop))?;
        let ProvisionedCell { cell, environment, key, is_shared } = self
            .step(TrialStep::Provision, |trial| {
                host.provisioned(&source, trial.commands, trial.stop)
            })?;
        let described = cell.as_executor().describe();
        let described = described.map_err(|error| TrialStop::of_cell(TrialStep::Start, &error))?;
        self.end.executor = Some(ExecutorEntry::of(&described));
        let env = environment.as_ref().map(|made| made.env.clone()).unwrap_or_default();
        self.end.provision = environment.map(|made| entry_of(&made, key, is_shared));
        let worked = self.work(&*cell, &source, &env);
        // A Cell that is cancelled begins anew.
        if host.settings().keep
            && worked != Err(TrialStop::Cancelled)
            && let Err(error) = cell.keep(self.files.path())
        {
            log::warn!("{}: its files are not kept: {error}", self.planned.id);
        }
        cell.as_executor().stop();
        worked
    }

    fn work(
        &mut self,
        cell: &dyn TrialCell,
        source: &SourceBase,
        env: &EnvChanges,
    ) -> Result<(), TrialStop> {
        let (host, commands) = (self.host, self.commands);
        self.step(TrialStep::Setup, |_| {
            let recorded = RecordedCell::new(cell.as_executor(), commands, TrialStep::Setup);
            host.set_up(&recorded, source, env)?;
            cell.checkpoint().map_err(|error| TrialStop::of_cell(TrialStep::Setup, &error))
        })?;
        let ended = self.step(TrialStep::Agent, |trial| trial.let_agent_work(cell, env))?;
        self.end.agent = Some(agent_entry(&ended));
        self.write(CellFile::Output, ended.output.as_bytes())?;
        self.step(TrialStep::Grade, |trial| {
            trial.difference(cell)?;
            trial.grade(cell, source, env)
        })
    }

    fn let_agent_work(
        &self,
        cell: &dyn TrialCell,
        env: &EnvChanges,
    ) -> Result<HarnessEnd, TrialStop> {
        let failed = |error| TrialStop::of_harness(&error);
        let case = self.case();
        let ChosenHarness { harness, timeout, egress } =
            self.host.harness(&self.planned.harness).map_err(failed)?;
        let prompt = HarnessPrompt::read(&case.task).map_err(failed)?;
        let trace = self.files.open_log(CellFile::Trace);
        let trace = trace.map_err(|error| TrialStop::of_store(TrialStep::Agent, &error))?;
        let trace = HarnessTrace::new(trace, TRACE_BYTES_MAX);
        let AgentSeat { cell, has_env } = cell.agent();
        let recorded = RecordedCell::new(cell, self.commands, TrialStep::Agent);
        let none = EnvChanges::new();
        let call = HarnessCall {
            prompt: &prompt,
            model: &self.planned.model,
            env: if has_env { env } else { &none },
            deadline: Deadline::after(timeout),
            cancel: self.stop,
            egress: egress.as_ref(),
            trace: &trace,
        };
        harness.work(&recorded, &call).map_err(failed)
    }

    fn difference(&mut self, cell: &dyn TrialCell) -> Result<(), TrialStop> {
        let deadline = Deadline::after(DIFFERENCE_TIMEOUT);
        let difference = cell.difference(self.host.difference_rules()?, deadline);
        let AgentDifference { patch, omitted, protected } =
            difference.map_err(|error| TrialStop::of_difference(&error))?;
        if let Some(agent) = &mut self.end.agent {
            agent.protected = protected;
        }
        let metrics = json!({
            "patch_bytes": patch.bytes.len(),
            "patch_files": patch.files,
            "patch_sha256": patch.sha256,
            "omitted": omitted,
        });
        self.write(CellFile::Patch, &patch.bytes)?;
        let written = self.files.write_json(CellFile::Metrics, &metrics);
        written.map_err(|error| TrialStop::of_store(TrialStep::Grade, &error))
    }

    fn grade(
        &mut self,
        cell: &dyn TrialCell,
        source: &SourceBase,
        env: &EnvChanges,
    ) -> Result<(), TrialStop> {
        let inputs = GradeInputs { env: env.clone(), hidden: source.hidden() };
        let mut scores: Vec<GraderScore> = Vec::new();
        let mut used = None;
        for grader in self.host.graders() {
            let fresh = used.take().map_or_else(|| cell.grader_cell(), Ok);
            let fresh = fresh.map_err(|error| TrialStop::of_cell(TrialStep::Grade, &error))?;
            let recorded = RecordedCell::new(&*fresh, self.commands, TrialStep::Grade);
            let graded = grader.grade(&recorded, &inputs);
            match weakened::lacks(Wall::Fresh) {
                true => used = Some(fresh),
                false => fresh.stop(),
            }
            scores.extend(graded.map_err(|error| TrialStop::of_grade(&error))?);
            self.check()?;
        }
        let overall = combine(&scores, self.case().pass_threshold);
        let written = self.files.write_json(
            CellFile::Score,
            &json!({"overall_score": overall.overall_score, "overall_passed": overall.overall_passed, "scores": scores}),
        );
        written.map_err(|error| TrialStop::of_store(TrialStep::Grade, &error))?;
        self.end.scores = scores.into_iter().map(Into::into).collect();
        self.end.overall_score = Some(overall.overall_score);
        self.end.overall_passed = Some(overall.overall_passed);
        self.end.status = CellStatus::Done;
        Ok(())
    }

    /// Does one step, unless the trial is cancelled, and notes how long it took.
    fn step<T>(
        &mut self,
        step: TrialStep,
        act: impl FnOnce(&mut Self) -> Result<T, TrialStop>,
    ) -> Result<T, TrialStop> {
        self.check()?;
        let began = Instant::now();
        let done = act(self);
        let wall_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.end.timing.steps_ms.insert(step.word().to_owned(), wall_ms);
        done
    }

    fn check(&self) -> Result<(), TrialStop> {
        if is_raised(self.stop) { Err(TrialStop::Cancelled) } else { Ok(()) }
    }

    fn write(&self, file: CellFile, bytes: &[u8]) -> Result<(), TrialStop> {
        let failed = |error: CaseRunError| TrialStop::of_store(TrialStep::Agent, &error);
        self.files.write(file, bytes).map_err(failed)
    }

    fn case(&self) -> &Case {
        self.host.case()
    }
}

fn entry_of(made: &ProvisionedEnvironment, key: Option<String>, is_shared: bool) -> ProvisionEntry {
    ProvisionEntry {
        kind: crate::case::provision::kind_word(made.kind).to_owned(),
        key,
        shared: is_shared,
        wall_ms: Some(made.wall_ms),
    }
}

fn agent_entry(ended: &HarnessEnd) -> AgentEntry {
    AgentEntry {
        outcome: ended.agent.outcome.to_owned(),
        exit_code: ended.agent.exit_code,
        wall_ms: Some(ended.agent.wall_ms),
        protected: Vec::new(),
        tokens: ended.agent.tokens,
        cost_usd: ended.agent.cost_usd,
    }
}
