//! What all Cells of a run share: sandboxes, the source, environments.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{TrialStep, TrialStop};
use super::own::{CellMaker, OwnCell, OwnCellRequest, OwnParts};
use super::settings::{EnvChanges, TrialParts, TrialSettings, seconds};
use super::sources::{SOURCE_TIMEOUT, SharedEnvironment, SourceBase};
use crate::case::cell::{
    CellBase, CellExecutor, CellExecutorKind, CellSettings, ContainerCaches, ContainerCell,
    ContainerHost, ContainerSettings, DifferenceRules, ExecCode, ExecError, HostCell,
    HostTrialCell, LocalCell, LocalSettings, StepLimits,
};
use crate::case::file::{Case, CaseEnvironment};
use crate::case::grade::{GradeError, Grader};
use crate::case::harness::{
    CellJobs, ChosenHarness, Harness, HarnessError, HarnessSetup, HarnessTerms,
};
use crate::case::provision::{BuiltInProvisioner, ProvisionStore, Provisioner};
use crate::case::source::set_up;
use crate::executor::SandboxExecutor;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// Sources and environments that a run keeps at the same time.
const KEPT_MAX: usize = 4;
/// The key of the source: a run has one Case.
const SOURCE_KEY: &str = "source";

/// What all Cells of a run share.
#[derive(Debug)]
pub struct TrialHost {
    settings: TrialSettings,
    parts: TrialParts,
    graders: Vec<Box<dyn Grader>>,
    rules: Result<DifferenceRules, GradeError>,
    sources: ProvisionStore<Arc<SourceBase>>,
    environments: ProvisionStore<SharedEnvironment>,
    caches: Option<ContainerCaches>,
    provisioner: Box<dyn Provisioner>,
    own_harness: Option<Arc<dyn Harness>>,
    own_cells: Option<OwnCells>,
}

/// Makes Cells in place of ours.
struct OwnCells(Box<CellMaker>);

impl fmt::Debug for OwnCells {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OwnCells").finish_non_exhaustive()
    }
}

impl AsRef<Self> for TrialHost {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl TrialHost {
    /// What the Cells of a Case share, with parts of another's making in place of ours. Nothing is prepared before the
    /// first needs it.
    pub fn new(settings: TrialSettings, mut parts: TrialParts, own: OwnParts) -> Self {
        let cells = Arc::clone(parts.trees.executor());
        parts.jobs.get_or_insert_with(|| Arc::new(CellJobs::new(cells, &settings.scratch)));
        let OwnParts { provisioner, harness: own_harness, graders, executor } = own;
        let graders = graders.unwrap_or_else(|| super::graders::graders_of(&settings.case));
        let rules = super::graders::difference_rules(&settings.case, settings.directory());
        let (sources, environments) =
            (ProvisionStore::new(KEPT_MAX), ProvisionStore::new(KEPT_MAX));
        let provisioner = provisioner.unwrap_or_else(|| Box::new(BuiltInProvisioner));
        let own_cells = executor.map(OwnCells);
        Self {
            settings,
            parts,
            graders,
            rules,
            sources,
            environments,
            provisioner,
            own_harness,
            own_cells,
            caches: None,
        }
    }

    /// The same, keeping the caches of containers in `directory`: at most `bytes_max` bytes of all tokens together.
    #[must_use]
    pub fn with_caches(self, directory: PathBuf, bytes_max: u64) -> Self {
        let caches = ContainerCaches::new(directory, &*self.settings.owner, bytes_max);
        Self { caches: Some(caches), ..self }
    }

    /// The source, which the first Cell prepares.
    ///
    /// # Errors
    /// It cannot be prepared. The next Cell tries again.
    pub fn source(&self, cancel: &CancelToken) -> Result<Arc<SourceBase>, TrialStop> {
        let wait = Deadline::after(SOURCE_TIMEOUT);
        let prepared = self.sources.share(SOURCE_KEY, cancel, wait, || {
            SourceBase::prepare(&self.settings, &self.parts, cancel).map(Arc::new)
        });
        prepared.map(|shared| shared.value).map_err(TrialStop::of_share)
    }

    /// Empties functions and runs the commands of `setup`.
    ///
    /// # Errors
    /// The first that failed.
    pub fn set_up(
        &self,
        cell: &dyn CellExecutor,
        source: &SourceBase,
        env: &EnvChanges,
    ) -> Result<(), TrialStop> {
        let setup = &self.case().setup;
        let deadline = Deadline::after(seconds(setup.timeout_s));
        let worktree = source.source.worktree_of().and_then(|_| cell.describe().ok());
        let worktree = worktree.map(|cell| cell.sandbox);
        let find = |path: &Path| source.source.find_file(path, worktree.as_deref());
        set_up(cell, setup, env, deadline, &find).map_err(|fault| TrialStop::of_setup(&fault))
    }

    /// The harness with that name.
    ///
    /// # Errors
    /// It cannot be used here.
    pub fn harness(&self, name: &str) -> Result<ChosenHarness, HarnessError> {
        if let Some(own) = &self.own_harness {
            return Ok(ChosenHarness::without_network(Arc::clone(own)));
        }
        let settings = &self.settings;
        let terms = HarnessTerms {
            egress: settings.egress.clone(),
            token: settings.owner.clone(),
            trusts_case: settings.trusts_case,
        };
        let setup = HarnessSetup {
            directory: settings.directory(),
            terms: &terms,
            variables: &|name| settings.variables.get(name).cloned(),
            jobs: self.parts.jobs.as_ref(),
        };
        ChosenHarness::find(name, self.case(), setup)
    }

    /// The Cell of another's executor over `base`, not started; `None` if there is no such executor.
    ///
    /// # Errors
    /// It makes none.
    pub(super) fn own_cell(
        &self,
        base: &CellBase,
        source: &SourceBase,
        cancel: &CancelToken,
    ) -> Result<Option<OwnCell>, TrialStop> {
        let Some(OwnCells(make)) = &self.own_cells else { return Ok(None) };
        let settings = &self.cell_settings(source);
        let (trees, scratch) = (&self.parts.trees, self.settings.scratch.as_path());
        let made = make(OwnCellRequest { settings, base, trees, scratch, cancel });
        made.map(Some).map_err(|error| TrialStop::of_cell(TrialStep::Start, &error))
    }

    /// The Cell of an executor whose Cells are directories, not started; `None` for sandboxes.
    ///
    /// # Errors
    /// The executor cannot be had here.
    pub(super) fn host_cell(
        &self,
        source: &SourceBase,
        cancel: &CancelToken,
    ) -> Result<Option<HostTrialCell>, TrialStop> {
        let TrialSettings { scratch, helper, .. } = &self.settings;
        let cell = self.cell_settings(source);
        let host_cell = match self.settings.executor {
            CellExecutorKind::Sandboxed => return Ok(None),
            CellExecutorKind::Local => {
                let (base, helper) = (scratch.clone(), helper.clone());
                let settings = LocalSettings { cell: cell.clone(), base, helper };
                HostCell::Local(Box::new(LocalCell::new(settings, cancel.clone())))
            }
            CellExecutorKind::Container => {
                let settings = self.container_settings(&cell)?;
                let has_agent = settings.container.harness;
                let cell = Box::new(ContainerCell::new(settings, cancel.clone()));
                HostCell::Container { cell, has_agent }
            }
        };
        Ok(Some(self.in_directories(host_cell, cell, cancel)))
    }

    pub(super) fn in_directories(
        &self,
        host_cell: HostCell,
        settings: CellSettings,
        cancel: &CancelToken,
    ) -> HostTrialCell {
        HostTrialCell::new(host_cell, self.parts.trees.clone(), settings, cancel.clone())
    }

    fn container_settings(&self, cell: &CellSettings) -> Result<ContainerSettings, TrialStop> {
        let TrialSettings { scratch, helper, variables, .. } = &self.settings;
        let Some(container) = self.case().container.clone() else {
            let words = "the Case has no block 'container'";
            let error = ExecError::new(ExecCode::BackendUnavailable, words);
            return Err(TrialStop::of_cell(TrialStep::Start, &error));
        };
        let passed = container
            .env_passthrough
            .iter()
            .filter_map(|name| Some((name.clone(), variables.get(name)?.clone())));
        let host = ContainerHost {
            base: scratch.clone(),
            helper: helper.clone(),
            search_path: variables.get("PATH").cloned().unwrap_or_default().into(),
            variables: passed.collect(),
            caches: self.caches.clone(),
        };
        let setup_egress = self.setup_egress()?;
        let (cell, stays) = (cell.clone(), self.settings.keep);
        Ok(ContainerSettings { cell, container, setup_egress, stays, host })
    }

    /// What the Cells have in common.
    pub fn cell_settings(&self, source: &SourceBase) -> CellSettings {
        CellSettings {
            source: None,
            case_dir: Some(source.shown()),
            limits: StepLimits::of(&self.case().limits),
        }
    }

    /// The Case.
    pub fn case(&self) -> &Case {
        &self.settings.case
    }

    /// The graders, in the order of the Case.
    pub fn graders(&self) -> &[Box<dyn Grader>] {
        &self.graders
    }

    /// What graders do not get of the agent's work.
    ///
    /// # Errors
    /// A pattern of reports is malformed.
    pub fn difference_rules(&self) -> Result<&DifferenceRules, TrialStop> {
        self.rules.as_ref().map_err(TrialStop::of_grade)
    }

    /// The environment to make, if any: a block that is switched off makes none.
    pub(super) fn environment(&self) -> Option<&CaseEnvironment> {
        self.case().environment.as_ref().filter(|environment| environment.venv)
    }

    pub(super) fn has_own_cells(&self) -> bool {
        self.own_cells.is_some()
    }

    /// Whether the Cells of a run begin with the same files: those of our sandboxes do.
    pub(super) fn shares_files(&self) -> bool {
        !self.has_own_cells() && self.settings.executor == CellExecutorKind::Sandboxed
    }

    pub(super) fn provisioner(&self) -> &dyn Provisioner {
        &*self.provisioner
    }

    pub(super) fn settings(&self) -> &TrialSettings {
        &self.settings
    }

    pub(super) fn executor(&self) -> &Arc<SandboxExecutor> {
        self.parts.trees.executor()
    }

    pub(super) fn environments(&self) -> &ProvisionStore<SharedEnvironment> {
        &self.environments
    }

    pub(super) fn root_name(&self) -> &str {
        &self.parts.root.name
    }
}
