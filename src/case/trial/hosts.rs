//! Makes what the Cells of each run share on this host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::host::TrialHost;
use super::own::OwnParts;
use super::settings::{TrialParts, TrialSettings};
use crate::case::cell::{CellExecutorKind, CellTrees, StepLimits};
use crate::case::file::Case;
use crate::egress::EgressTerms;
use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::cache::CacheSpace;
use crate::evaluation::repository::{Repositories, RepositoryRoots, RepositorySettings};
use crate::evaluation::trees::session_base::SessionDirectory;
use crate::evaluation::trees::{EvaluationRoot, EvaluationTrees};
use crate::executor::SandboxExecutor;
use cofferdam_core::{NetworkObject, SetupFailure};

/// Directories of the store: caches of repositories, apart from those of evaluations, whose entries in use only they
/// know, and files of Cells while they run.
const CACHE: &str = "case-cache";
const CONTAINERS: &str = "containers";
const SESSIONS: &str = "case-sessions";
const IMAGES: &str = "images";
const SCRATCH: &str = "scratch";
/// Bounds of repositories, as of evaluations.
const CLONE_TIMEOUT: Duration = Duration::from_mins(10);
const REPOSITORY_BYTES_MAX: u64 = 4 << 30;
const BASE_BYTES_MAX: u64 = 8 << 30;

/// What holds for the runs of one process.
#[derive(Debug, Clone)]
pub struct TrialHostsSettings {
    /// The store, absolute.
    pub store_dir: PathBuf,
    /// The most bytes of the caches of repositories, and of those of containers.
    pub cache_bytes_max: u64,
    /// Rules over what git sends to the host of a repository.
    pub clone_network: NetworkObject,
    /// Rules over what provisioning sends.
    pub provision_network: NetworkObject,
    /// Variables that provisioning sees besides those that name indexes and certificates.
    pub provision_env: Vec<String>,
    /// What holds for everything that is reached.
    pub egress: EgressTerms,
    /// The name of the root file system, in digests.
    pub root_name: String,
    /// The variables that Cases may have: all of the caller's, or what a service lets Cases see.
    pub variables: BTreeMap<String, String>,
    /// Whether the hosts that the Case names may have private addresses, as on the command line.
    pub trusts_case: bool,
    /// The program `cofferdam`.
    pub helper: PathBuf,
    /// Directories below which repositories of this host may be cloned.
    pub local_roots: Vec<PathBuf>,
}

/// A run whose Cells share a [`RunHost`].
#[derive(Debug, Clone, Copy)]
pub struct RunHostRequest<'a> {
    /// The Case.
    pub case: &'a Case,
    /// Its file, with every link followed.
    pub case_path: &'a Path,
    /// The executor of its Cells.
    pub executor: CellExecutorKind,
    /// Whether Cells keep their files.
    pub keep: bool,
    /// Whose caches and secrets are used: the name of a token, or nothing on the command line.
    pub owner: &'a str,
}

/// What the Cells of one run share, and its directory.
#[derive(Debug)]
pub struct RunHost {
    // Dropped before the directory, in which its files are.
    host: TrialHost,
    _scratch: TempDir,
}

/// What all runs of one process share: sandboxes, caches, and the directory of files of Cells.
#[derive(Debug)]
pub struct TrialHosts {
    settings: TrialHostsSettings,
    repositories: Arc<Repositories>,
    trees: CellTrees,
    bases: EvaluationTrees,
    local: RepositoryRoots,
    // Dropped last: files of the others are in it.
    session: SessionDirectory,
}

impl TrialHosts {
    /// Opens it for sandboxes of `executor`.
    ///
    /// # Errors
    /// This host cannot have files of Cells.
    pub fn open(
        settings: TrialHostsSettings,
        executor: &Arc<SandboxExecutor>,
    ) -> Result<Self, SetupFailure> {
        fs::create_dir_all(&settings.store_dir).map_err(cannot("make the store"))?;
        let session = SessionDirectory::open(&settings.store_dir.join(SESSIONS))
            .map_err(|error| SetupFailure::from_words("files of Cells", error.to_string()))?;
        let (images, scratch) = (session.path().join(IMAGES), session.path().join(SCRATCH));
        for directory in [&images, &scratch] {
            fs::create_dir(directory).map_err(cannot("make directory"))?;
        }
        // Files are in memory where this host cannot mount images.
        let trees = CellTrees::open(Arc::clone(executor), Some(&images))
            .or_else(|_| CellTrees::open(Arc::clone(executor), None))
            .map_err(|error| SetupFailure::from_words("files of Cells", error.message))?;
        let bases = EvaluationTrees::open(Arc::clone(executor), Some(&images))
            .or_else(|_| EvaluationTrees::open(Arc::clone(executor), None))?;
        let missing =
            |path: PathBuf| SetupFailure::from_words("repositories", path.display().to_string());
        let local = RepositoryRoots::open(&settings.local_roots).map_err(missing)?;
        let repositories = Arc::new(repositories(&settings));
        Ok(Self { settings, repositories, trees, bases, local, session })
    }

    /// What holds for all of them.
    pub fn settings(&self) -> &TrialHostsSettings {
        &self.settings
    }

    /// Directories that no copy of the directory of the Case at `case_path` has: the store, whose results are none of
    /// an agent's business, unless the Case itself is in it.
    pub fn left_out(&self, case_path: &Path) -> Vec<PathBuf> {
        let store_dir = &self.settings.store_dir;
        let is_in_store = case_path.starts_with(store_dir)
            || store_dir.canonicalize().is_ok_and(|store| case_path.starts_with(store));
        if is_in_store { Vec::new() } else { vec![store_dir.clone()] }
    }

    /// What the Cells of a run share. Nothing is prepared before the first needs it.
    ///
    /// # Errors
    /// There is no directory for it.
    pub fn host(&self, request: &RunHostRequest<'_>) -> Result<RunHost, SetupFailure> {
        self.host_with(request, OwnParts::default())
    }

    /// The same with parts of another's making.
    ///
    /// # Errors
    /// There is no directory for it.
    pub fn host_with(
        &self,
        request: &RunHostRequest<'_>,
        own: OwnParts,
    ) -> Result<RunHost, SetupFailure> {
        let scratch = tempfile::tempdir_in(self.session.path().join(SCRATCH))
            .map_err(cannot("make directory"))?;
        let ours = &self.settings;
        let settings = TrialSettings {
            case: request.case.clone(),
            case_path: request.case_path.to_owned(),
            executor: request.executor,
            keep: request.keep,
            variables: ours.variables.clone(),
            provision_env: ours.provision_env.clone(),
            provision_network: ours.provision_network.clone(),
            egress: ours.egress.clone(),
            owner: request.owner.to_owned(),
            trusts_case: ours.trusts_case,
            scratch: scratch.path().to_owned(),
            helper: ours.helper.clone(),
            left_out: self.left_out(request.case_path),
        };
        let parts = TrialParts {
            trees: self.trees.clone(),
            repositories: Arc::clone(&self.repositories),
            root: EvaluationRoot { name: ours.root_name.clone(), trees: self.bases.clone() },
            local: self.local.clone(),
            jobs: None,
        };
        let caches = ours.store_dir.join(CACHE).join(CONTAINERS);
        let host = TrialHost::new(settings, parts, own);
        let host = host.with_caches(caches, ours.cache_bytes_max);
        Ok(RunHost { host, _scratch: scratch })
    }
}

impl AsRef<TrialHost> for RunHost {
    fn as_ref(&self) -> &TrialHost {
        &self.host
    }
}

fn repositories(settings: &TrialHostsSettings) -> Repositories {
    let limits = StepLimits::default();
    let cache = CacheSpace::lasting(settings.store_dir.join(CACHE), settings.cache_bytes_max);
    Repositories::new(RepositorySettings {
        egress: settings.egress.clone(),
        cache: Arc::new(cache),
        clone_timeout: CLONE_TIMEOUT,
        repository_bytes_max: REPOSITORY_BYTES_MAX,
        base_bytes_max: BASE_BYTES_MAX,
        install_timeout: CLONE_TIMEOUT,
        install_network: NetworkObject::default(),
        clone_network: settings.clone_network.clone(),
        install_env: BTreeMap::new(),
        bounds: PhaseBounds {
            memory_bytes_max: limits.memory_bytes_max,
            processes_max: limits.processes_max,
            cpus_milli_max: None,
        },
    })
}

fn cannot(step: &'static str) -> impl Fn(std::io::Error) -> SetupFailure {
    move |error| SetupFailure::from_io(step, &error)
}
