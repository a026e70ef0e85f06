//! What tries the Cells of a Case on this host.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::run::{CellRunnerSource, RunnerRequest};
use crate::case::cell::{CellExecutorKind, CellTrees, ExecError, StepLimits};
use crate::case::file::{Case, CheckedCase};
use crate::case::run::{CellEnd, CellFault, CellFilesDir, CellRunner, CellWarning, PlannedCell};
use crate::case::source::repository_hosts;
use crate::case::trial::{TrialHost, TrialParts, TrialRunner, TrialSettings, inputs_digest};
use crate::cli::failure::Failure;
use crate::cli::options::file_secrets::egress_with_secrets;
use crate::cli::options::sandbox_options::{PROFILE, ROOTFS_VARIABLE, root_source};
use crate::config::CaseConfig;
use crate::egress::{AllowList, EgressTerms, ServiceEgress};
use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::cache::CacheSpace;
use crate::evaluation::repository::{Repositories, RepositoryRoots, RepositorySettings};
use crate::evaluation::trees::session_base::SessionDirectory;
use crate::evaluation::trees::{EvaluationRoot, EvaluationTrees};
use crate::executor::SandboxExecutor;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{NetworkObject, SetupFailure};
use cofferdam_sandbox::engine::{SandboxConfig, SandboxHost, builtin_profile};

/// Directories of the store: caches of repositories, and files of Cells while they run.
const CACHE: &str = "cache";
const CONTAINERS: &str = "containers";
const SESSIONS: &str = "case-sessions";
const IMAGES: &str = "images";
const SCRATCH: &str = "scratch";
/// Bounds of repositories, as of evaluations.
const CLONE_TIMEOUT: Duration = Duration::from_mins(10);
const REPOSITORY_BYTES_MAX: u64 = 4 << 30;
const BASE_BYTES_MAX: u64 = 8 << 30;
const CACHE_BYTES_MAX: u64 = 20 << 30;
/// Sandboxes that one Cell has at the same time.
const HOST_IDS: usize = 4;

/// Makes runners of Cells on this host.
#[derive(Debug, Clone, Copy)]
pub struct CaseTrials;

/// Runs Cells on this host.
#[derive(Debug)]
struct HostRunner {
    // Dropped before the directory, in which its files are.
    runner: TrialRunner,
    _session: SessionDirectory,
}

/// Fails every Cell: this host cannot run one.
#[derive(Debug)]
struct NoRunner {
    reason: String,
}

impl CellRunnerSource for CaseTrials {
    fn source_digest(&self, request: &RunnerRequest<'_>) -> Result<String, Failure> {
        let cancel = CancelToken::new().map_err(cannot("make a token"))?;
        let left_out = [std::path::absolute(request.store_dir).map_err(cannot("store"))?];
        inputs_digest(&request.checked.case, request.case_path, &left_out, &cancel)
            .map_err(Failure::Usage)
    }

    fn cell_runner(&self, request: &RunnerRequest<'_>) -> Result<Box<dyn CellRunner>, Failure> {
        let RunnerRequest { checked, case_path, options, store_dir, workers } = *request;
        let asked = options.executor.as_deref().and_then(CellExecutorKind::parse);
        let opened = CaseHost::open(&CaseHostRequest {
            checked,
            case_path,
            executor: CellExecutorKind::of(&checked.case, asked),
            keep: options.keep,
            workers,
            store_dir,
        });
        match opened {
            Ok(CaseHost { host, session }) => {
                let warnings = checked.warnings.iter().map(CellWarning::of).collect();
                let runner = TrialRunner::new(host, warnings);
                Ok(Box::new(HostRunner { runner, _session: session }))
            }
            Err(Failure::Refused(failure)) => {
                Ok(Box::new(NoRunner { reason: failure.to_string() }))
            }
            Err(failure) => Err(failure),
        }
    }
}

impl CellRunner for HostRunner {
    fn run_cell(&self, cell: &PlannedCell, files: &CellFilesDir, stop: &CancelToken) -> CellEnd {
        self.runner.run_cell(cell, files, stop)
    }
}

impl CellRunner for NoRunner {
    fn run_cell(&self, _: &PlannedCell, _: &CellFilesDir, _: &CancelToken) -> CellEnd {
        CellEnd::failed(CellFault {
            code: "backend.unavailable".to_owned(),
            step: "start".to_owned(),
            message: self.reason.clone(),
            tail: None,
        })
    }
}

/// What a run of a Case needs of this host.
#[derive(Debug)]
pub struct CaseHost {
    // Dropped before the directory, in which its files are.
    host: TrialHost,
    session: SessionDirectory,
}

/// What a [`CaseHost`] is opened for.
#[derive(Debug, Clone, Copy)]
pub struct CaseHostRequest<'a> {
    /// The Case.
    pub checked: &'a CheckedCase,
    /// Its file, with every link followed.
    pub case_path: &'a Path,
    /// The executor of its Cells.
    pub executor: CellExecutorKind,
    /// Whether Cells keep their files.
    pub keep: bool,
    /// Cells that run at the same time.
    pub workers: usize,
    /// The store.
    pub store_dir: &'a Path,
}

impl CaseHost {
    /// Opens it. A host without sandboxes is a failure.
    pub fn open(request: &CaseHostRequest<'_>) -> Result<Self, Failure> {
        let (config, problems) = CaseConfig::read(env::vars_os());
        let config = problems.none_or(config)?;
        let store_dir = std::path::absolute(request.store_dir).map_err(cannot("store"))?;
        fs::create_dir_all(&store_dir).map_err(cannot("make the store"))?;
        let session = SessionDirectory::open(&store_dir.join(SESSIONS)).map_err(|error| {
            Failure::Refused(SetupFailure::from_words("files of Cells", error.to_string()))
        })?;
        let images = session.path().join(IMAGES);
        let scratch = session.path().join(SCRATCH);
        for directory in [&images, &scratch] {
            fs::create_dir(directory).map_err(cannot("make directory"))?;
        }
        // The results of other Cells and what may hold secrets are none of an agent's business.
        let (service, secret_files) = egress_with_secrets(config.secrets.as_ref())?;
        let store = std::slice::from_ref(&store_dir);
        let private = [config.network_files.as_slice(), &secret_files, store].concat();
        let executor = Arc::new(executor(request.workers, private)?);
        let egress = terms(&config, service, &request.checked.case)?;
        let parts = parts(&config, &executor, (&images, &store_dir), &egress)?;
        let settings = TrialSettings {
            case: request.checked.case.clone(),
            case_path: request.case_path.to_owned(),
            executor: request.executor,
            keep: request.keep,
            variables: variables(),
            provision_env: config.provision_env,
            provision_network: config.provision_network,
            egress,
            owner: String::new(),
            trusts_case: true,
            scratch,
            helper: env::current_exe().map_err(cannot("find this program"))?,
            left_out: vec![store_dir.clone()],
        };
        let caches = store_dir.join(CACHE).join(CONTAINERS);
        let host = TrialHost::new(settings, parts).with_caches(caches, CACHE_BYTES_MAX);
        Ok(Self { host, session })
    }

    /// What its Cells share.
    pub fn host(&self) -> &TrialHost {
        &self.host
    }
}

fn parts(
    config: &CaseConfig,
    executor: &Arc<SandboxExecutor>,
    (images, store_dir): (&Path, &Path),
    egress: &EgressTerms,
) -> Result<TrialParts, Failure> {
    let unusable = |error: ExecError| {
        Failure::Refused(SetupFailure::from_words("files of Cells", error.message))
    };
    // Files are in memory where this host cannot mount images.
    let trees = CellTrees::open(Arc::clone(executor), Some(images))
        .or_else(|_| CellTrees::open(Arc::clone(executor), None))
        .map_err(unusable)?;
    let bases = EvaluationTrees::open(Arc::clone(executor), Some(images))
        .or_else(|_| EvaluationTrees::open(Arc::clone(executor), None))
        .map_err(Failure::Refused)?;
    let limits = StepLimits::default();
    let cache = Arc::new(CacheSpace::lasting(store_dir.join(CACHE), CACHE_BYTES_MAX));
    let repositories = Repositories::new(RepositorySettings {
        egress: egress.clone(),
        cache,
        clone_timeout: CLONE_TIMEOUT,
        repository_bytes_max: REPOSITORY_BYTES_MAX,
        base_bytes_max: BASE_BYTES_MAX,
        install_timeout: CLONE_TIMEOUT,
        install_network: NetworkObject::default(),
        clone_network: config.clone_network.clone(),
        install_env: BTreeMap::new(),
        bounds: PhaseBounds {
            memory_bytes_max: limits.memory_bytes_max,
            processes_max: limits.processes_max,
            cpus_milli_max: None,
        },
    });
    let name = env::var(ROOTFS_VARIABLE).unwrap_or_default();
    let missing = |path: PathBuf| {
        Failure::Refused(SetupFailure::from_words("repositories", path.display().to_string()))
    };
    Ok(TrialParts {
        trees,
        repositories,
        root: EvaluationRoot { name, trees: bases },
        local: RepositoryRoots::open(&[PathBuf::from("/")]).map_err(missing)?,
        jobs: None,
    })
}

fn executor(workers: usize, private: Vec<PathBuf>) -> Result<SandboxExecutor, Failure> {
    let rootfs = env::var_os(ROOTFS_VARIABLE).map(PathBuf::from);
    let root = root_source(rootfs.as_deref()).map_err(Failure::Usage)?;
    let profile = builtin_profile(PROFILE)
        .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
    let config = SandboxConfig { profile, root, private, strict: false };
    let mut executor = SandboxExecutor::new(SandboxHost::open(config).map_err(Failure::Refused)?);
    executor.prepare_for(workers.saturating_mul(HOST_IDS), 0).map_err(Failure::Refused)?;
    Ok(executor)
}

/// What may be reached. The repositories that the Case names need no public address.
fn terms(config: &CaseConfig, service: ServiceEgress, case: &Case) -> Result<EgressTerms, Failure> {
    let hosts = [config.private_hosts.entries(), &repository_hosts(case)].concat();
    let private_hosts = AllowList::parse(&hosts)
        .map_err(|error| Failure::Usage(format!("the hosts of repositories: {error}")))?;
    Ok(EgressTerms {
        private_hosts,
        service,
        bytes_max: config.egress.bytes_max,
        roots: config.egress.roots.clone(),
        log_paths: config.egress.log_paths,
    })
}

/// The variables of this process that are text.
fn variables() -> BTreeMap<String, String> {
    let all = env::vars_os();
    all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

fn cannot(step: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::Refused(SetupFailure::from_io(step, &error))
}
