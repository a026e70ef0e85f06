//! The environment of a Cell: made in it, or made once and shared.

use super::error::{TrialStep, TrialStop};
use super::host::TrialHost;
use super::recorded::RecordedCell;
use super::sources::SourceBase;
use crate::case::cell::{CellBase, CellExecutor, SandboxedCell, TrialCell};
use crate::case::file::CaseEnvironment;
use crate::case::provision::{
    BuiltInProvisioner, PassedVariables, ProvisionKey, ProvisionNetwork, ProvisionPlaces,
    ProvisionRequest, ProvisionedEnvironment, Provisioner, ReachedHosts, SharedProvision,
    provision_timeout, selected_variables,
};
use crate::case::run::CellLog;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// How many times as long as one provisioning a trial waits for others that provision.
const WAIT_FACTOR: u32 = 4;
/// The interpreter of environments outside of containers.
const PYTHON: &str = "python3";

/// An environment that Cells share.
#[derive(Debug, Clone)]
pub struct SharedEnvironment {
    /// The source with the environment.
    base: CellBase,
    made: ProvisionedEnvironment,
}

/// A started Cell with its environment.
#[derive(Debug)]
pub struct ProvisionedCell {
    /// The Cell.
    pub cell: Box<dyn TrialCell>,
    /// Its environment, if the Case has one.
    pub environment: Option<ProvisionedEnvironment>,
    /// The key of an environment that Cells share.
    pub key: Option<String>,
    /// Whether it was made before, for another Cell.
    pub is_shared: bool,
}

/// What one provisioning gets and reaches.
#[derive(Debug)]
struct ProvisionInputs {
    variables: PassedVariables,
    network: ProvisionNetwork,
}

impl TrialHost {
    /// A started Cell over `source`, with the environment of the Case. Its commands are recorded in `commands`, if it is there.
    ///
    /// # Errors
    /// The Cell or its environment cannot be made.
    pub fn provisioned(
        &self,
        source: &SourceBase,
        commands: Option<&CellLog>,
        cancel: &CancelToken,
    ) -> Result<ProvisionedCell, TrialStop> {
        let Some(environment) = self.environment() else {
            let cell = Box::new(self.started(&source.base, source, cancel)?);
            return Ok(ProvisionedCell { cell, environment: None, key: None, is_shared: false });
        };
        let inputs = self.inputs(environment)?;
        if !environment.share {
            let cell = self.started(&source.base, source, cancel)?;
            let made = self.provision(&cell, environment, &inputs, commands)?;
            let environment = Some(made);
            return Ok(ProvisionedCell {
                cell: Box::new(cell),
                environment,
                key: None,
                is_shared: false,
            });
        }
        let key = self.key(environment, source, &inputs)?;
        let timeout = provision_timeout(environment);
        let wait = Deadline::after(timeout.saturating_mul(WAIT_FACTOR));
        let shared = self.environments().share(&key, cancel, wait, || {
            let cell = self.started(&source.base, source, cancel)?;
            let made = self.provision(&cell, environment, &inputs, commands)?;
            let base = cell.into_base();
            let base = base.map_err(|error| TrialStop::of_cell(TrialStep::Provision, &error))?;
            Ok(SharedEnvironment { base, made })
        });
        let SharedProvision { value, is_shared } = shared.map_err(TrialStop::of_share)?;
        let cell = Box::new(self.started(&value.base, source, cancel)?);
        let environment = Some(value.made);
        Ok(ProvisionedCell { cell, environment, key: Some(key), is_shared })
    }

    fn started(
        &self,
        base: &CellBase,
        source: &SourceBase,
        cancel: &CancelToken,
    ) -> Result<SandboxedCell, TrialStop> {
        let executor = self.executor().clone();
        let settings = self.cell_settings(source);
        let cell = SandboxedCell::over(base.clone(), executor, settings, cancel.clone());
        cell.start().map_err(|error| TrialStop::of_cell(TrialStep::Start, &error))?;
        Ok(cell)
    }

    fn provision(
        &self,
        cell: &SandboxedCell,
        environment: &CaseEnvironment,
        inputs: &ProvisionInputs,
        commands: Option<&CellLog>,
    ) -> Result<ProvisionedEnvironment, TrialStop> {
        let settings = self.settings();
        let egress = inputs.network.grant(&settings.owner, settings.egress.log());
        let egress = egress.map_err(|error| TrialStop::of_provision(&error))?;
        let request = ProvisionRequest {
            environment,
            places: &places(),
            variables: &inputs.variables,
            egress: egress.as_ref(),
            deadline: Deadline::after(provision_timeout(environment)),
        };
        let recorded = RecordedCell::new(cell, commands, TrialStep::Provision);
        let made = BuiltInProvisioner.provision(&recorded, &request);
        made.map_err(|error| TrialStop::of_provision(&error))
    }

    fn inputs(&self, environment: &CaseEnvironment) -> Result<ProvisionInputs, TrialStop> {
        let settings = self.settings();
        let selected = selected_variables(&settings.variables, &settings.provision_env);
        let hosts = ReachedHosts::of(environment, &selected);
        let failed = |error| TrialStop::of_provision(&error);
        let variables = PassedVariables::read(selected).map_err(failed)?;
        let network = ProvisionNetwork::new(
            settings.egress.clone(),
            &settings.provision_network,
            &hosts,
            settings.trusts_case,
        );
        Ok(ProvisionInputs { variables, network: network.map_err(failed)? })
    }

    fn key(
        &self,
        environment: &CaseEnvironment,
        source: &SourceBase,
        inputs: &ProvisionInputs,
    ) -> Result<String, TrialStop> {
        let key = ProvisionKey {
            owner: &self.settings().owner,
            environment,
            case_digest: &source.case_digest,
            source_digest: source.source.digest(),
            container_setup: &[],
            variables: &inputs.variables,
            network: inputs.network.object(),
            python: PYTHON,
            platform: std::env::consts::ARCH,
            root: self.root_name(),
        };
        key.digest().map_err(|error| TrialStop::of_provision(&error))
    }
}

/// Where the commands of sandboxed Cells see everything.
fn places() -> ProvisionPlaces {
    ProvisionPlaces {
        env: "/env".into(),
        case_dir: "/case".into(),
        python: PYTHON.to_owned(),
        path: cofferdam_sandbox::plan::PATH_DEFAULT.to_owned(),
    }
}
