//! Runs the Cells of a Case for a run.

use serde_json::json;

use super::attempt::Trial;
use super::error::{TrialStep, TrialStop};
use super::host::TrialHost;
use crate::case::cell::CellExecutorKind;
use crate::case::file::{Case, SourceIsolation};
use crate::case::run::{
    CellEnd, CellFault, CellFile, CellFilesDir, CellRunner, CellStatus, CellWarning, PlannedCell,
};
use cofferdam_core::sync::cancel::CancelToken;

/// The code of what is written in vain.
const NO_EFFECT: &str = "no_effect";
/// The key that only the local executor may heed.
const ISOLATION: &str = "source.isolation";

/// Runs the Cells of one Case.
#[derive(Debug)]
pub struct TrialRunner<H = TrialHost> {
    host: H,
    warnings: Vec<CellWarning>,
}

/// Fails every Cell: this host cannot run one.
#[derive(Debug)]
pub struct UnavailableRunner {
    /// Why, in words.
    pub reason: String,
}

impl<H: AsRef<TrialHost>> TrialRunner<H> {
    /// Runs Cells by `host`. Each result has `warnings`, those of the Case, and those of what the executor does not do.
    pub fn new(host: H, mut warnings: Vec<CellWarning>) -> Self {
        let shared = host.as_ref();
        // Without an executor it is a guess.
        warnings.retain(|warning| warning.path != ISOLATION || warning.code != NO_EFFECT);
        warnings.extend(executor_warnings(shared.case(), shared.settings().executor));
        Self { host, warnings }
    }

    fn attempt(&self, planned: &PlannedCell, files: &CellFilesDir, stop: &CancelToken) -> CellEnd {
        let mut end = CellEnd::of(CellStatus::Failed);
        end.warnings.clone_from(&self.warnings);
        let host = self.host.as_ref();
        let executor = host.settings().executor.word();
        let spec =
            json!({"cell": planned, "executor": executor, "prompt": host.case().task.prompt});
        let begun = files.write_json(CellFile::Spec, &spec);
        let commands = begun.and_then(|()| files.open_log(CellFile::Commands));
        let commands = match commands {
            Ok(commands) => commands,
            Err(error) => return with_stop(end, TrialStop::of_store(TrialStep::Start, &error)),
        };
        let mut trial = Trial { host, planned, files, commands: Some(&commands), stop, end };
        let ended = trial.run();
        match ended {
            Ok(()) => trial.end,
            Err(stop) => with_stop(trial.end, stop),
        }
    }
}

impl<H: AsRef<TrialHost> + Send + Sync> CellRunner for TrialRunner<H> {
    fn run_cell(&self, planned: &PlannedCell, files: &CellFilesDir, stop: &CancelToken) -> CellEnd {
        self.attempt(planned, files, stop)
    }
}

impl CellRunner for UnavailableRunner {
    fn run_cell(&self, _: &PlannedCell, _: &CellFilesDir, _: &CancelToken) -> CellEnd {
        CellEnd::failed(CellFault {
            code: "backend.unavailable".to_owned(),
            step: "start".to_owned(),
            message: self.reason.clone(),
            tail: None,
        })
    }
}

/// What `case` asks for in vain of that executor.
fn executor_warnings(case: &Case, executor: CellExecutorKind) -> Vec<CellWarning> {
    let no_effect = |path: &str, message: &str| CellWarning {
        path: path.to_owned(),
        code: NO_EFFECT.to_owned(),
        message: message.to_owned(),
    };
    let mut warnings = Vec::new();
    let is_worktree =
        case.source.as_ref().is_some_and(|source| source.isolation == SourceIsolation::Worktree);
    if is_worktree && executor != CellExecutorKind::Local {
        warnings
            .push(no_effect(ISOLATION, "only the local executor has worktrees: this is a clone"));
    }
    warnings
}

/// `end`, of a trial that ended early for `stop`.
fn with_stop(mut end: CellEnd, stop: TrialStop) -> CellEnd {
    let zero = |end: &mut CellEnd, fault: CellFault| {
        (end.status, end.error) = (CellStatus::Done, Some(fault));
        (end.overall_score, end.overall_passed) = (Some(0.0), Some(false));
    };
    match stop {
        TrialStop::Cancelled => end.status = CellStatus::Pending,
        TrialStop::Skipped(reason) => {
            (end.status, end.skipped_reason) = (CellStatus::Skipped, Some(reason));
        }
        TrialStop::Failed(fault) => (end.status, end.error) = (CellStatus::Failed, Some(fault)),
        TrialStop::Ungraded(fault) => zero(&mut end, fault),
    }
    end
}
