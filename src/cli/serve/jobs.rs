//! The jobs of a service, according to its configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::store_path::{absolute, canonical};
use crate::cli::failure::{Failure, error_words};
use crate::cli::firecracker::FirecrackerOptions;
use crate::config::{Config, JobsConfig, Roots, roots_for};
use crate::egress::ServiceEgress;
use crate::executor::Executor;
use crate::job::{LazyJobs, RunnerSettings, StartError};
use crate::policy::{PolicyConfig, WorkspaceRoots};
use crate::store::{StoreError, StoreSettings};

/// The store of a service's jobs, if jobs are enabled, and their Firecracker backend.
#[derive(Debug)]
pub struct ServedJobs {
    store_dir: Option<PathBuf>,
    /// Whether an option or variable names the store.
    is_asked_for: bool,
    machines: Option<FirecrackerOptions>,
}

impl ServedJobs {
    const NONE: Self = Self { store_dir: None, is_asked_for: false, machines: None };

    /// The jobs of `config`. `workspaces` is copied for every run, so it must not contain records or
    /// files of virtual machines.
    pub fn new(
        config: &Config,
        store_dir: Option<PathBuf>,
        workspaces: &Path,
    ) -> Result<Self, Failure> {
        if !config.jobs.enabled {
            return Ok(Self::NONE);
        }
        let is_asked_for = store_dir.is_some() || config.jobs.store_is_asked_for();
        let store_dir = store_dir.unwrap_or_else(|| config.jobs.store_dir.clone());
        let fault = |error: &dyn std::fmt::Display| Failure::option("--store-dir", error);
        let store_dir = absolute(&store_dir).map_err(|error| {
            let words = error_words(&error);
            fault(&format!("{}: {words}; want a directory for records", store_dir.display()))
        })?;
        if !store_dir.starts_with(workspaces) {
            let machines = machines(config, workspaces)?;
            return Ok(Self { store_dir: Some(store_dir), is_asked_for, machines });
        }
        if is_asked_for {
            let words =
                format!("{}: in a workspace, which is copied for every run", store_dir.display());
            return Err(fault(&words));
        }
        log::warn!(
            "jobs are disabled: their records would be in the workspace; set JOBS_STORE_DIR, or JOBS=off"
        );
        Ok(Self::NONE)
    }

    /// Paths that no sandbox may show.
    pub fn private(&self) -> Vec<PathBuf> {
        let of_machines = self.machines.iter().flat_map(|machines| &machines.private);
        self.store_dir.iter().chain(of_machines).cloned().collect()
    }

    /// How many sandboxes jobs may use at once.
    pub fn sandboxes(&self, config: &JobsConfig) -> usize {
        if self.store_dir.is_some() { config.workers } else { 0 }
    }

    /// Starts the jobs, which run in sandboxes of `local`. What they reach is part of `egress`.
    pub fn start(
        self,
        config: &Config,
        local: Arc<dyn Executor>,
        egress: &ServiceEgress,
    ) -> Result<Option<Arc<LazyJobs>>, Failure> {
        let Some(store_dir) = self.store_dir else { return Ok(None) };
        let JobsConfig { workers, queue_max, retention, store_bytes_max, maxima, .. } = config.jobs;
        let settings = RunnerSettings {
            store_dir,
            store: StoreSettings { retention, bytes_max: store_bytes_max },
            policy: policy(config)?,
            egress: config.jobs.network.terms(egress),
            maxima,
            local,
            firecracker: self.machines.map(|machines| machines.backend),
        };
        let jobs = match LazyJobs::new(settings.clone(), workers, queue_max) {
            Err(StartError::Store(error @ StoreError::Owned { .. })) if !self.is_asked_for => {
                log::warn!(
                    "jobs are refused until the store is free: {error}; \
                     set JOBS_STORE_DIR, or JOBS=off"
                );
                LazyJobs::deferred(settings, workers, queue_max)
            }
            jobs => jobs.map_err(|error| Failure::option("--store-dir", error))?,
        };
        Ok(Some(Arc::new(jobs)))
    }
}

/// The Firecracker backend of `config`; refuses files in a workspace.
fn machines(config: &Config, workspaces: &Path) -> Result<Option<FirecrackerOptions>, Failure> {
    let Some(config) = &config.firecracker else { return Ok(None) };
    let machines = FirecrackerOptions::from_config(config)?;
    match machines.private.iter().find(|path| path.starts_with(workspaces)) {
        None => Ok(Some(machines)),
        Some(path) => {
            let words =
                format!("{}: in a workspace, which is copied for every run", path.display());
            Err(Failure::option("FIRECRACKER_WORK_DIR", words))
        }
    }
}

/// What the operator allows for every job.
fn policy(config: &Config) -> Result<PolicyConfig, Failure> {
    let roots = match roots_for(config.address, &config.jobs) {
        Roots::Any => WorkspaceRoots::Any,
        Roots::Only(roots) => WorkspaceRoots::Only(canonical("JOBS_WORKSPACE_ROOTS", &roots)?),
    };
    let allowed_env = config.jobs.allowed_env.iter().cloned().collect();
    Ok(PolicyConfig { allowed_env, roots, network_hosts: config.jobs.network.hosts.clone() })
}
