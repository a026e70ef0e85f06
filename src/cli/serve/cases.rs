//! The Cases of a service, according to its configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::store_path::{ServedStore, canonical};
use crate::case::harness::CaseDenial;
use crate::case::provision::selected_variables;
use crate::case::run::CellRunner;
use crate::case::service::{
    CaseRunners, CaseRuns, CaseService, CaseServiceSettings, RunnerRequest, TrialRunners,
};
use crate::case::trial::{TrialHosts, TrialHostsSettings};
use crate::cli::failure::Failure;
use crate::cli::options::sandbox_options::{PROFILE, root_source};
use crate::config::{CaseServiceConfig, Config, Isolation, NetworkConfig, Roots};
use crate::egress::{EgressTerms, ServiceEgress};
use crate::executor::SandboxExecutor;
use crate::policy::WorkspaceRoots;
use cofferdam_core::SetupFailure;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_sandbox::engine::{SandboxConfig, SandboxHost, builtin_profile};

/// The store of a service's Cases, if they are enabled.
#[derive(Debug)]
pub struct ServedCases {
    store: Option<ServedStore>,
}

impl ServedCases {
    /// The Cases of `config`, with the store of jobs. `workspaces` is copied for every run, so it must not contain
    /// records.
    pub fn new(
        config: &Config,
        store_dir: Option<PathBuf>,
        workspaces: &Path,
    ) -> Result<Self, Failure> {
        if !config.cases.enabled {
            return Ok(Self { store: None });
        }
        let store = ServedStore::beside(config, store_dir, workspaces)?;
        if store.is_none() {
            log::warn!(
                "Cases are disabled: their records would be in the workspace; \
                 set JOBS_STORE_DIR, or CASES=off"
            );
        }
        Ok(Self { store })
    }

    /// Starts the Cases, which go on with runs that have not ended. What they reach is part of `egress`; no sandbox
    /// shows any of `private`.
    pub fn start(
        self,
        config: &Config,
        egress: &ServiceEgress,
        private: &[PathBuf],
    ) -> Result<Option<Arc<dyn CaseRuns>>, Failure> {
        let Some(store) = self.store else { return Ok(None) };
        let roots = roots(config)?;
        let settings = settings(config, &store.directory, &roots, egress);
        let private = [private, std::slice::from_ref(&store.directory)].concat();
        let runners = LazyRunners {
            hosts: hosts_settings(config, &store.directory, &roots, settings.egress.clone())?,
            sandboxes: SandboxSettings::of(config, private)?,
            opened: Mutex::default(),
        };
        match CaseService::open(settings, Arc::new(runners)) {
            Ok(service) => Ok(Some(Arc::new(service))),
            // What the configuration names is never left out.
            Err(error) if !store.is_asked_for => {
                log::warn!("Cases are disabled: {error}; set JOBS_STORE_DIR, or CASES=off");
                Ok(None)
            }
            Err(error) => {
                let words = format!("{}: {error}", store.directory.display());
                Err(Failure::Serve(std::io::Error::other(words)))
            }
        }
    }
}

/// What sandboxes of Cells are opened with.
#[derive(Debug)]
struct SandboxSettings {
    rootfs: Option<PathBuf>,
    private: Vec<PathBuf>,
    is_strict: bool,
    host_ids: usize,
    workers: usize,
}

/// Opens what Cells are run by when the first run needs it: a service without Cases makes no directory for them.
#[derive(Debug)]
struct LazyRunners {
    hosts: TrialHostsSettings,
    sandboxes: SandboxSettings,
    /// What was opened. A failure is not kept: the next run tries again.
    opened: Mutex<Option<Arc<TrialRunners>>>,
}

impl LazyRunners {
    fn opened(&self) -> Result<Arc<TrialRunners>, String> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runners) = &*opened {
            return Ok(Arc::clone(runners));
        }
        let made = self.open().map_err(|failure| failure.to_string())?;
        Ok(Arc::clone(opened.insert(Arc::new(made))))
    }

    fn open(&self) -> Result<TrialRunners, SetupFailure> {
        let executor = Arc::new(self.sandboxes.executor()?);
        TrialHosts::open(self.hosts.clone(), &executor).map(TrialRunners::new)
    }
}

impl CaseRunners for LazyRunners {
    fn denials(&self, request: &RunnerRequest<'_>) -> Vec<CaseDenial> {
        // Where this fails no Cell of the run begins.
        self.opened().map_or_else(|_| Vec::new(), |runners| runners.denials(request))
    }

    fn source_digest(
        &self,
        request: &RunnerRequest<'_>,
        cancel: &CancelToken,
    ) -> Result<String, String> {
        self.opened()?.source_digest(request, cancel)
    }

    fn cell_runner(&self, request: &RunnerRequest<'_>) -> Result<Box<dyn CellRunner>, String> {
        self.opened()?.cell_runner(request)
    }
}

impl SandboxSettings {
    fn of(config: &Config, private: Vec<PathBuf>) -> Result<Self, Failure> {
        let rootfs = config.rootfs.clone();
        // A wrong one refuses the start.
        root_source(rootfs.as_deref()).map_err(Failure::Usage)?;
        let is_strict = config.isolation == Isolation::Strict;
        Ok(Self {
            rootfs,
            private,
            is_strict,
            host_ids: config.cases.sandboxes(),
            workers: config.cases.workers,
        })
    }

    fn executor(&self) -> Result<SandboxExecutor, SetupFailure> {
        let root = root_source(self.rootfs.as_deref())
            .map_err(|words| SetupFailure::from_words("rootfs", words))?;
        let profile = builtin_profile(PROFILE)
            .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
        let private = self.private.clone();
        let settings = SandboxConfig { profile, root, private, strict: self.is_strict };
        let mut executor = SandboxExecutor::new(SandboxHost::open(settings)?);
        executor.prepare_for(self.host_ids, self.workers)?;
        Ok(executor)
    }
}

fn roots(config: &Config) -> Result<WorkspaceRoots, Failure> {
    let variable = match config.cases.roots {
        Some(_) => "CASES_ROOTS",
        None => "JOBS_WORKSPACE_ROOTS",
    };
    Ok(match config.cases.roots_for(config.address, &config.jobs) {
        Roots::Any => WorkspaceRoots::Any,
        Roots::Only(roots) => WorkspaceRoots::Only(canonical(variable, &roots)?),
    })
}

fn settings(
    config: &Config,
    store_dir: &Path,
    roots: &WorkspaceRoots,
    egress: &ServiceEgress,
) -> CaseServiceSettings {
    let CaseServiceConfig { workers, queue_max, input_bytes_max, .. } = config.cases;
    let network = NetworkConfig {
        hosts: config.cases.egress_hosts.clone(),
        private_hosts: config.cases.all.private_hosts.clone(),
        shared: config.cases.all.egress.clone(),
    };
    CaseServiceSettings {
        store_dir: store_dir.to_owned(),
        roots: roots.clone(),
        workers,
        queue_max,
        input_bytes_max,
        egress: network.terms(egress),
        egress_allow: network.hosts,
        harness_env: config.cases.harness_env.clone(),
        retention: config.jobs.retention,
    }
}

fn hosts_settings(
    config: &Config,
    store_dir: &Path,
    roots: &WorkspaceRoots,
    egress: EgressTerms,
) -> Result<TrialHostsSettings, Failure> {
    let cases = &config.cases.all;
    let rootfs = config.rootfs.as_deref();
    let local_roots = match roots {
        WorkspaceRoots::Any => vec![PathBuf::from("/")],
        WorkspaceRoots::Only(roots) => roots.clone(),
    };
    Ok(TrialHostsSettings {
        store_dir: store_dir.to_owned(),
        cache_bytes_max: cases.cache_bytes_max,
        clone_network: cases.clone_network.clone(),
        provision_network: cases.provision_network.clone(),
        provision_env: cases.provision_env.clone(),
        egress,
        root_name: rootfs.map_or_else(String::new, |path| path.display().to_string()),
        variables: variables(&config.cases),
        trusts_case: false,
        helper: std::env::current_exe().map_err(Failure::Serve)?,
        local_roots,
    })
}

/// The variables of the service that Cases may have a use for, and no other.
fn variables(config: &CaseServiceConfig) -> BTreeMap<String, String> {
    let all = std::env::vars_os();
    let all =
        all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let all: BTreeMap<String, String> = all.collect();
    let named = config.harness_env.iter();
    let named = named.filter_map(|name| Some((name.clone(), all.get(name)?.clone())));
    let mut variables = selected_variables(&all, &config.all.provision_env);
    variables.extend(named);
    variables
}
