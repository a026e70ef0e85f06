//! The environment of a Cell: made in it, or made once and shared.

use super::error::{TrialStep, TrialStop};
use super::host::TrialHost;
use super::own::{OwnCell, check_places};
use super::recorded::RecordedCell;
use super::settings::EnvChanges;
use super::sources::{SOURCE_TIMEOUT, SharedEnvironment, SourceBase, stop_of};
use crate::case::cell::{
    CellBase, CellDescription, CellExecutor, CellExecutorKind, ExecError, HostCell, HostTrialCell,
    SandboxedCell, TrialCell,
};
use crate::case::file::CaseEnvironment;
use crate::case::provision::{
    PassedVariables, ProvisionKey, ProvisionNetwork, ProvisionPlaces, ProvisionRequest,
    ProvisionedEnvironment, ReachedHosts, SharedProvision, provision_timeout, selected_variables,
};
use crate::case::run::CellLog;
use crate::case::source::CellWorktree;
use crate::egress::EgressGrant;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_sandbox::plan::PATH_DEFAULT;

/// How many times as long as one provisioning a trial waits for others that provision.
const WAIT_FACTOR: u32 = 4;
/// The interpreter of environments outside of containers.
const PYTHON: &str = "python3";

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
    /// A Cell that is set up for an agent, with the variables of its environment.
    ///
    /// # Errors
    /// A step failed.
    pub fn set_up_cell(
        &self,
        cancel: &CancelToken,
    ) -> Result<(Box<dyn TrialCell>, EnvChanges), TrialStop> {
        let source = self.source(cancel)?;
        let ProvisionedCell { cell, environment, .. } = self.provisioned(&source, None, cancel)?;
        let env = environment.map(|made| made.env).unwrap_or_default();
        self.set_up(cell.as_executor(), &source, &env)?;
        Ok((cell, env))
    }

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
            let cell = self.started(&source.base, source, cancel)?;
            keep_caches(&*cell)?;
            return Ok(ProvisionedCell { cell, environment: None, key: None, is_shared: false });
        };
        let inputs = self.inputs(environment)?;
        if !environment.share || !self.shares_files() {
            let cell = self.started(&source.base, source, cancel)?;
            let made = self.provision(cell.as_executor(), environment, &inputs, commands)?;
            keep_caches(&*cell)?;
            let environment = Some(made);
            return Ok(ProvisionedCell { cell, environment, key: None, is_shared: false });
        }
        let key = self.key(environment, source, &inputs)?;
        let timeout = provision_timeout(environment);
        let wait = Deadline::after(timeout.saturating_mul(WAIT_FACTOR));
        let shared = self.environments().share(&key, cancel, wait, || {
            let cell = self.sandboxed(&source.base, source, cancel)?;
            let made = self.provision(&cell, environment, &inputs, commands)?;
            let base = cell.freeze();
            let base = base.map_err(|error| TrialStop::of_cell(TrialStep::Provision, &error))?;
            Ok(SharedEnvironment { base, made })
        });
        let SharedProvision { value, is_shared } = shared.map_err(TrialStop::of_share)?;
        let cell = self.started(&value.base, source, cancel)?;
        let environment = Some(value.made);
        Ok(ProvisionedCell { cell, environment, key: Some(key), is_shared })
    }

    /// A started Cell that begins with `base`; one in a directory with the source alone.
    fn started(
        &self,
        base: &CellBase,
        source: &SourceBase,
        cancel: &CancelToken,
    ) -> Result<Box<dyn TrialCell>, TrialStop> {
        let cell = match self.own_cell(base, source, cancel)? {
            Some(OwnCell::Directories(cell)) => {
                let settings = self.cell_settings(source);
                self.in_directories(HostCell::Own(cell), settings, cancel)
            }
            Some(OwnCell::Whole(cell)) => {
                let started = cell.as_executor().start();
                started.map_err(|error| TrialStop::of_cell(TrialStep::Start, &error))?;
                return Ok(cell);
            }
            None => match self.host_cell(source, cancel)? {
                Some(cell) => cell,
                None => return Ok(Box::new(self.sandboxed(base, source, cancel)?)),
            },
        };
        self.start_in_directories(&cell, source, cancel)?;
        Ok(Box::new(cell))
    }

    /// Starts `cell` and puts the source into its sandbox.
    fn start_in_directories(
        &self,
        cell: &HostTrialCell,
        source: &SourceBase,
        cancel: &CancelToken,
    ) -> Result<(), TrialStop> {
        let failed = |error: ExecError| TrialStop::of_cell(TrialStep::Start, &error);
        cell.as_executor().start().map_err(failed)?;
        let described = cell.as_executor().describe().map_err(failed)?;
        if self.has_own_cells() {
            check_places(&described, &self.settings().scratch).map_err(failed)?;
        }
        let CellDescription { sandbox, .. } = described;
        match source.source.worktree_of() {
            Some(repository) => {
                let commit = source.source.commit().unwrap_or_default();
                let ends = (cancel, Deadline::after(SOURCE_TIMEOUT));
                let worktree = CellWorktree::add(repository, commit, &sandbox, ends);
                cell.keep_worktree(worktree.map_err(|error| stop_of(&error, self.settings()))?);
            }
            None => source.copy_to(&sandbox)?,
        }
        Ok(())
    }

    fn sandboxed(
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
        cell: &dyn CellExecutor,
        environment: &CaseEnvironment,
        inputs: &ProvisionInputs,
        commands: Option<&CellLog>,
    ) -> Result<ProvisionedEnvironment, TrialStop> {
        let egress = self.grant(inputs)?;
        let described = cell.describe();
        let described = described.map_err(|error| TrialStop::of_cell(TrialStep::Start, &error))?;
        let request = ProvisionRequest {
            environment,
            places: &self.places(described),
            variables: &inputs.variables,
            egress: egress.as_ref(),
            deadline: Deadline::after(provision_timeout(environment)),
        };
        let recorded = RecordedCell::new(cell, commands, TrialStep::Provision);
        let made = self.provisioner().provision(&recorded, &request);
        made.map_err(|error| TrialStop::of_provision(&error))
    }

    /// What `container.setup` may reach: what provisioning may.
    pub(super) fn setup_egress(&self) -> Result<Option<EgressGrant>, TrialStop> {
        let Some(environment) = self.environment() else { return Ok(None) };
        self.grant(&self.inputs(environment)?)
    }

    fn grant(&self, inputs: &ProvisionInputs) -> Result<Option<EgressGrant>, TrialStop> {
        let settings = self.settings();
        let granted = inputs.network.grant(&settings.owner, settings.egress.log());
        granted.map_err(|error| TrialStop::of_provision(&error))
    }

    /// Where commands see everything.
    fn places(&self, cell: CellDescription) -> ProvisionPlaces {
        let container = self.case().container.as_ref();
        let container = container.filter(|_| cell.kind == CellExecutorKind::Container);
        let python = container.map_or(PYTHON, |container| &container.python);
        ProvisionPlaces {
            env: cell.env,
            case_dir: cell.case_dir.unwrap_or_default(),
            python: python.to_owned(),
            path: PATH_DEFAULT.to_owned(),
        }
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

/// Keeps what the provisioning of `cell`, which has succeeded, made for later Cells.
fn keep_caches(cell: &dyn TrialCell) -> Result<(), TrialStop> {
    cell.keep_caches().map_err(|error| TrialStop::of_cell(TrialStep::Provision, &error))
}
