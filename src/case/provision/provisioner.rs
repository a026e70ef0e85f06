//! Provisioning of one Cell.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use super::certificates::PassedVariables;
use super::error::{ProvisionError, judge, not_started};
use super::plan::{PlannedStep, ProvisionPlaces, StepPhase, returned_environment, steps};
use crate::case::cell::CellExecutor;
use crate::case::file::{CaseEnvironment, EnvironmentKind};
use crate::egress::EgressGrant;
use cofferdam_core::values::deadline::Deadline;

/// The longest time of the step, which stands for none.
const TIMEOUT_MAX: Duration = Duration::from_hours(365 * 24);

/// What an environment is made with.
#[derive(Debug, Clone, Copy)]
pub struct ProvisionRequest<'a> {
    /// The block of the Case.
    pub environment: &'a CaseEnvironment,
    /// Where commands see the files of the Cell.
    pub places: &'a ProvisionPlaces,
    /// What they get of our variables.
    pub variables: &'a PassedVariables,
    /// What they may reach.
    pub egress: Option<&'a EgressGrant>,
    /// When all of them have to be done: [`provision_timeout`] after the start of the step.
    pub deadline: Deadline,
}

/// What provisioning made of a Cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvisionedEnvironment {
    /// How it was made.
    pub kind: EnvironmentKind,
    /// What later commands see of it, as a difference to the variables of their executor; `None` removes one.
    pub env: BTreeMap<String, Option<String>>,
    /// How long it took, milliseconds.
    pub wall_ms: u64,
}

/// Makes the environment of a Cell.
pub trait Provisioner: Send + Sync + fmt::Debug {
    /// Makes the environment in `cell`, which is started, by commands that the Cell runs.
    ///
    /// # Errors
    /// A command failed, or the time is over. The files of the Cell are then of no use.
    fn provision(
        &self,
        cell: &dyn CellExecutor,
        request: &ProvisionRequest<'_>,
    ) -> Result<ProvisionedEnvironment, ProvisionError>;
}

/// The provisioner of every kind of environment in a case file: venv and pip, uv, commands.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltInProvisioner;

impl Provisioner for BuiltInProvisioner {
    fn provision(
        &self,
        cell: &dyn CellExecutor,
        request: &ProvisionRequest<'_>,
    ) -> Result<ProvisionedEnvironment, ProvisionError> {
        let ProvisionRequest { environment, places, variables, egress, .. } = *request;
        let began = Instant::now();
        let seen = variables.seen_in(&places.env);
        let mut has_certificates = false;
        for step in steps(environment, places, &seen, egress) {
            // A virtual environment is empty when it is made.
            if step.phase != StepPhase::MakeVenv && !has_certificates {
                variables.put(cell, &places.env)?;
                has_certificates = true;
            }
            run(cell, step, request)?;
        }
        Ok(ProvisionedEnvironment {
            kind: environment.kind,
            env: returned_environment(environment, places),
            wall_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }
}

/// The time of the whole step that `environment` asks for.
pub fn provision_timeout(environment: &CaseEnvironment) -> Duration {
    Duration::try_from_secs_f64(environment.timeout_s).unwrap_or(TIMEOUT_MAX).min(TIMEOUT_MAX)
}

fn run(
    cell: &dyn CellExecutor,
    PlannedStep { phase, mut request }: PlannedStep,
    all: &ProvisionRequest<'_>,
) -> Result<(), ProvisionError> {
    let timeout = provision_timeout(all.environment);
    request.timeout = all.deadline.remaining();
    if request.timeout.is_zero() {
        return Err(not_started(phase, &request, timeout));
    }
    judge(phase, &cell.run(&request)?, timeout)
}
