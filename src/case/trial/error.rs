//! Why an attempt at a Cell did not come to a grade.

use crate::case::cell::{ExecCode, ExecError};
use crate::case::grade::GradeError;
use crate::case::harness::HarnessError;
use crate::case::provision::{ProvisionError, ShareEnded};
use crate::case::run::{CaseRunError, CellFault};
use crate::case::source::{SetupFault, SourceError};
use crate::evaluation::patch::PatchError;

/// A step of a trial, in the order of the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialStep {
    /// The source is prepared.
    Source,
    /// The Cell is started.
    Start,
    /// The environment is made.
    Provision,
    /// The source is changed for the task.
    Setup,
    /// The agent works.
    Agent,
    /// Its work is graded.
    Grade,
}

impl TrialStep {
    /// Its name in results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Start => "start",
            Self::Provision => "provision",
            Self::Setup => "setup",
            Self::Agent => "agent",
            Self::Grade => "grade",
        }
    }

    /// The start of its codes.
    fn code(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Start => "container",
            Self::Provision => "provision",
            Self::Setup => "setup",
            Self::Agent => "harness",
            Self::Grade => "grade",
        }
    }
}

/// How a trial ends early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialStop {
    /// It was cancelled.
    Cancelled,
    /// The Case cannot be tried here, and allows that.
    Skipped(String),
    /// Something other than the agent failed.
    Failed(CellFault),
    /// The agent's work cannot be taken: it is graded 0.
    Ungraded(CellFault),
}

impl TrialStop {
    /// `step` failed for `message`.
    pub fn failed(step: TrialStep, message: impl Into<String>) -> Self {
        Self::Failed(fault(step, format!("{}.failed", step.code()), message.into(), None))
    }

    /// `step` is out of time.
    pub fn timed_out(step: TrialStep, message: impl Into<String>, tail: &str) -> Self {
        let code = format!("{}.timed_out", step.code());
        Self::Failed(fault(step, code, message.into(), kept(tail)))
    }

    /// A command of `step` failed, or met the limit `limit`.
    pub fn of_command(
        step: TrialStep,
        message: String,
        tail: &str,
        limit: Option<&'static str>,
    ) -> Self {
        let code = match limit {
            Some(_) => "limit.exceeded".to_owned(),
            None => format!("{}.failed", step.code()),
        };
        Self::Failed(fault(step, code, message, kept(tail)))
    }

    /// The executor failed in `step`.
    pub fn of_cell(step: TrialStep, error: &ExecError) -> Self {
        let code = match error.code {
            ExecCode::BackendUnavailable => "backend.unavailable".to_owned(),
            _ => format!("{}.failed", step.code()),
        };
        Self::Failed(fault(step, code, error.message.clone(), None))
    }

    /// The source cannot be prepared.
    pub fn of_source(error: &SourceError) -> Self {
        Self::Failed(fault(TrialStep::Source, error.code().to_owned(), error.to_string(), None))
    }

    /// A function cannot be emptied, or a command of `setup` failed.
    pub fn of_setup(error: &SetupFault) -> Self {
        let step = TrialStep::Setup;
        match error {
            SetupFault::Command { outcome: "cancelled", .. } => Self::Cancelled,
            _ => Self::Failed(fault(
                step,
                error.code().to_owned(),
                error.to_string(),
                kept(error.tail()),
            )),
        }
    }

    /// The environment was not made.
    pub fn of_provision(error: &ProvisionError) -> Self {
        let step = TrialStep::Provision;
        match error {
            ProvisionError::Cancelled => Self::Cancelled,
            ProvisionError::Cell(error) => Self::of_cell(step, error),
            ProvisionError::Failed { limit: Some(limit), tail, .. } => {
                Self::of_command(step, error.to_string(), tail, Some(limit))
            }
            _ => {
                let code = error.code().to_owned();
                Self::Failed(fault(step, code, error.to_string(), kept(error.tail())))
            }
        }
    }

    /// There is no environment to share.
    pub fn of_share(ended: ShareEnded<Self>) -> Self {
        match ended {
            ShareEnded::Cancelled => Self::Cancelled,
            ShareEnded::Expired => Self::timed_out(
                TrialStep::Provision,
                "environment provisioning failed: another trial that provisions takes too long",
                "",
            ),
            ShareEnded::Failed(stop) => stop,
        }
    }

    /// The harness failed, through no fault of the agent.
    pub fn of_harness(error: &HarnessError) -> Self {
        let code = error.fault.code().to_owned();
        Self::Failed(fault(TrialStep::Agent, code, error.message.clone(), kept(&error.tail)))
    }

    /// The agent's difference cannot be had.
    pub fn of_difference(error: &PatchError) -> Self {
        let step = TrialStep::Grade;
        let code = match error {
            PatchError::Cancelled => return Self::Cancelled,
            PatchError::Sandbox(failure) => return Self::failed(step, failure.to_string()),
            PatchError::TooLarge { .. } => "patch.too_large",
            PatchError::Rejected(_) => "patch.rejected",
        };
        let message = match error {
            // Its own words name a variable that Cases do not have.
            PatchError::TooLarge { bytes_max } => {
                format!("the patch is longer than {bytes_max} bytes (limits.patch_bytes)")
            }
            _ => error.to_string(),
        };
        Self::Ungraded(fault(step, code.to_owned(), message, None))
    }

    /// A grader could not judge.
    pub fn of_grade(error: &GradeError) -> Self {
        match error {
            GradeError::Cancelled => Self::Cancelled,
            GradeError::Exec(error) => Self::of_cell(TrialStep::Grade, error),
            _ => Self::failed(TrialStep::Grade, error.to_string()),
        }
    }

    /// A file of the Cell cannot be written to the store.
    pub fn of_store(step: TrialStep, error: &CaseRunError) -> Self {
        Self::failed(step, error.to_string())
    }
}

fn fault(step: TrialStep, code: String, message: String, tail: Option<String>) -> CellFault {
    CellFault { code, step: step.word().to_owned(), message, tail }
}

fn kept(tail: &str) -> Option<String> {
    (!tail.is_empty()).then(|| tail.to_owned())
}
