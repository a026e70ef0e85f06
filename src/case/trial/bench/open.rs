//! What a bench needs of this host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::error::TrialBenchError;
use crate::case::cell::{CellExecutorKind, CellTrees, StepLimits};
use crate::case::file::Case;
use crate::case::source::repository_hosts;
use crate::case::trial::settings::{TrialParts, TrialSettings};
use crate::config::CaseConfig;
use crate::egress::{AllowList, EgressTerms, ServiceEgress};
use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::cache::CacheSpace;
use crate::evaluation::repository::{Repositories, RepositoryRoots, RepositorySettings};
use crate::evaluation::trees::session_base::SessionDirectory;
use crate::evaluation::trees::{EvaluationRoot, EvaluationTrees};
use crate::executor::SandboxExecutor;
use cofferdam_core::{NetworkObject, SetupFailure};
use cofferdam_sandbox::engine::{RootSource, SandboxConfig, SandboxHost, builtin_profile};

/// Directories of the store, as those of `cofferdam case run`.
pub(super) const CACHE: &str = "cache";
pub(super) const CONTAINERS: &str = "containers";
const SESSIONS: &str = "case-sessions";
const PROFILE: &str = "default";
/// Bounds of repositories, as of evaluations.
const CLONE_TIMEOUT: Duration = Duration::from_mins(10);
const REPOSITORY_BYTES_MAX: u64 = 4 << 30;
const BASE_BYTES_MAX: u64 = 8 << 30;
pub(super) const CACHE_BYTES_MAX: u64 = 20 << 30;
/// Sandboxes that one Cell has at the same time.
const HOST_IDS: usize = 4;

/// What a bench is opened with.
#[derive(Debug)]
pub(super) struct BenchPlan<'a> {
    pub(super) case: &'a Case,
    pub(super) case_path: &'a Path,
    /// Absolute.
    pub(super) store: &'a Path,
    pub(super) variables: &'a BTreeMap<String, String>,
    pub(super) helper: &'a Path,
    pub(super) keep: bool,
}

/// A bench's settings and parts, and the directory of this process.
pub(super) fn open(
    plan: &BenchPlan<'_>,
) -> Result<(TrialSettings, TrialParts, SessionDirectory), TrialBenchError> {
    let variables = plan.variables.iter().map(|(name, value)| (name.into(), value.into()));
    let (config, problems) = CaseConfig::read(variables);
    let config = problems
        .none_or(config)
        .map_err(|problems| TrialBenchError::Variables(problems.to_string()))?;
    let session = SessionDirectory::open(&plan.store.join(SESSIONS))
        .map_err(|error| SetupFailure::from_words("files of Cells", error.to_string()))?;
    let [images, scratch] = ["images", "scratch"].map(|name| session.path().join(name));
    for directory in [&images, &scratch] {
        fs::create_dir(directory)
            .map_err(|error| SetupFailure::from_io("make directory", &error))?;
    }
    let store = plan.store.to_owned();
    let private = [config.network_files.as_slice(), std::slice::from_ref(&store)].concat();
    let hosts = [config.private_hosts.entries(), &repository_hosts(plan.case)].concat();
    let egress = EgressTerms {
        private_hosts: AllowList::parse(&hosts)
            .map_err(|error| TrialBenchError::Variables(error.to_string()))?,
        service: ServiceEgress::default(),
        bytes_max: config.egress.bytes_max,
        roots: config.egress.roots.clone(),
        log_paths: config.egress.log_paths,
    };
    let executor = Arc::new(sandboxes(private)?);
    let parts = parts(&config, &executor, (&images, &store), &egress)?;
    let settings = TrialSettings {
        case: plan.case.clone(),
        case_path: plan.case_path.to_owned(),
        executor: CellExecutorKind::of(plan.case, None),
        keep: plan.keep,
        variables: plan.variables.clone(),
        provision_env: config.provision_env,
        provision_network: config.provision_network,
        egress,
        owner: String::new(),
        trusts_case: true,
        scratch,
        helper: plan.helper.to_owned(),
        left_out: vec![store],
    };
    Ok((settings, parts, session))
}

fn parts(
    config: &CaseConfig,
    executor: &Arc<SandboxExecutor>,
    (images, store): (&Path, &Path),
    egress: &EgressTerms,
) -> Result<TrialParts, SetupFailure> {
    // Files are in memory where this host cannot mount images.
    let trees = CellTrees::open(Arc::clone(executor), Some(images))
        .or_else(|_| CellTrees::open(Arc::clone(executor), None))
        .map_err(|error| SetupFailure::from_words("files of Cells", error.message))?;
    let bases = EvaluationTrees::open(Arc::clone(executor), Some(images))
        .or_else(|_| EvaluationTrees::open(Arc::clone(executor), None))?;
    let limits = StepLimits::default();
    let repositories = Repositories::new(RepositorySettings {
        egress: egress.clone(),
        cache: Arc::new(CacheSpace::lasting(store.join(CACHE), CACHE_BYTES_MAX)),
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
    let local = RepositoryRoots::open(&[PathBuf::from("/")])
        .map_err(|path| SetupFailure::from_words("repositories", path.display().to_string()))?;
    let root = EvaluationRoot { name: String::new(), trees: bases };
    Ok(TrialParts { trees, repositories, root, local, jobs: None })
}

/// The sandboxes of one Cell at a time.
fn sandboxes(private: Vec<PathBuf>) -> Result<SandboxExecutor, SetupFailure> {
    let profile = builtin_profile(PROFILE)
        .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
    let config = SandboxConfig { profile, root: RootSource::Host, private, strict: false };
    let mut executor = SandboxExecutor::new(SandboxHost::open(config)?);
    executor.prepare_for(HOST_IDS, 0)?;
    Ok(executor)
}
