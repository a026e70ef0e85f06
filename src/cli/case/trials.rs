//! What tries the Cells of a Case on this host.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::run::{CellRunnerSource, RunnerRequest};
use crate::case::cell::CellExecutorKind;
use crate::case::file::{Case, CheckedCase};
use crate::case::run::{CellRunner, CellWarning};
use crate::case::source::repository_hosts;
use crate::case::trial::{
    RunHost, RunHostRequest, TrialHost, TrialHosts, TrialHostsSettings, TrialRunner,
    UnavailableRunner, inputs_digest,
};
use crate::cli::failure::Failure;
use crate::cli::options::file_secrets::egress_with_secrets;
use crate::cli::options::sandbox_options::{PROFILE, ROOTFS_VARIABLE, root_source};
use crate::config::CaseConfig;
use crate::egress::{AllowList, EgressTerms, ServiceEgress};
use crate::executor::SandboxExecutor;
use cofferdam_core::SetupFailure;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_sandbox::engine::{SandboxConfig, SandboxHost, builtin_profile};

/// Sandboxes that one Cell has at the same time.
const HOST_IDS: usize = 4;

/// Makes runners of Cells on this host.
#[derive(Debug, Clone, Copy)]
pub struct CaseTrials;

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
            Ok(host) => {
                let warnings = checked.warnings.iter().map(CellWarning::of).collect();
                Ok(Box::new(TrialRunner::new(host, warnings)))
            }
            Err(Failure::Refused(failure)) => {
                Ok(Box::new(UnavailableRunner { reason: failure.to_string() }))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// What a run of a Case needs of this host.
#[derive(Debug)]
pub struct CaseHost {
    // Dropped before what it is made by, in whose directory its files are.
    run: RunHost,
    _hosts: TrialHosts,
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
        // Before sandboxes hide it.
        fs::create_dir_all(&store_dir).map_err(cannot("make the store"))?;
        // The results of other Cells and what may hold secrets are none of an agent's business.
        let (service, secret_files) = egress_with_secrets(config.secrets.as_ref())?;
        let store = std::slice::from_ref(&store_dir);
        let private = [config.network_files.as_slice(), &secret_files, store].concat();
        let executor = Arc::new(executor(request.workers, private)?);
        let settings = TrialHostsSettings {
            store_dir,
            cache_bytes_max: config.cache_bytes_max,
            egress: terms(&config, service, &request.checked.case)?,
            clone_network: config.clone_network,
            provision_network: config.provision_network,
            provision_env: config.provision_env,
            root_name: env::var(ROOTFS_VARIABLE).unwrap_or_default(),
            variables: variables(),
            trusts_case: true,
            helper: env::current_exe().map_err(cannot("find this program"))?,
            local_roots: vec![PathBuf::from("/")],
        };
        let hosts = TrialHosts::open(settings, &executor).map_err(Failure::Refused)?;
        let run = hosts.host(&RunHostRequest {
            case: &request.checked.case,
            case_path: request.case_path,
            executor: request.executor,
            keep: request.keep,
            owner: "",
        });
        Ok(Self { run: run.map_err(Failure::Refused)?, _hosts: hosts })
    }

    /// What its Cells share.
    pub fn host(&self) -> &TrialHost {
        self.run.as_ref()
    }
}

impl AsRef<TrialHost> for CaseHost {
    fn as_ref(&self) -> &TrialHost {
        self.host()
    }
}

fn executor(workers: usize, private: Vec<PathBuf>) -> Result<SandboxExecutor, Failure> {
    let rootfs = env::var_os(ROOTFS_VARIABLE).map(PathBuf::from);
    let root = root_source(rootfs.as_deref()).map_err(Failure::Usage)?;
    let profile = builtin_profile(PROFILE)
        .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
    let config = SandboxConfig { profile, root, private, strict: false };
    let mut executor = SandboxExecutor::new(SandboxHost::open(config).map_err(Failure::Refused)?);
    executor.prepare_for(workers.saturating_mul(HOST_IDS), workers).map_err(Failure::Refused)?;
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
