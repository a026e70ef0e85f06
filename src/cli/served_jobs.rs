//! The jobs of a service, as its configuration asks for them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::failure::{Failure, error_words};
use super::virtual_machines::VirtualMachines;
use crate::config::{Config, JobsConfig, Roots, roots_for};
use crate::executor::Executor;
use crate::job::{LazyJobs, RunnerSettings, StartError};
use crate::policy::{PolicyConfig, WorkspaceRoots};
use crate::store::{StoreError, StoreSettings};

/// Whether there are jobs, where their records are, and what machines they may have.
#[derive(Debug)]
pub struct ServedJobs {
    store_dir: Option<PathBuf>,
    /// Whether the store is one that somebody named.
    is_asked_for: bool,
    machines: Option<VirtualMachines>,
}

impl ServedJobs {
    const NONE: Self = Self { store_dir: None, is_asked_for: false, machines: None };

    /// Looks at what `config` says. `workspaces` holds what runs get copies of: records do not
    /// belong in there, and neither do files of virtual machines.
    pub fn look(
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
            fault(&format!("{}: {words}; want a directory to keep records in", store_dir.display()))
        })?;
        if !store_dir.starts_with(workspaces) {
            let machines = machines(config, workspaces)?;
            return Ok(Self { store_dir: Some(store_dir), is_asked_for, machines });
        }
        if is_asked_for {
            let words =
                format!("{}: in a workspace, which every run is a copy of", store_dir.display());
            return Err(fault(&words));
        }
        log::warn!(
            "no jobs: their records would be in the workspace; set JOBS_STORE_DIR, or JOBS=off"
        );
        Ok(Self::NONE)
    }

    /// What no box may show.
    pub fn private(&self) -> Vec<PathBuf> {
        let of_machines = self.machines.iter().flat_map(|machines| &machines.private);
        self.store_dir.iter().chain(of_machines).cloned().collect()
    }

    /// How many boxes they may have at once.
    pub fn boxes(&self, config: &JobsConfig) -> usize {
        if self.store_dir.is_some() { config.workers } else { 0 }
    }

    /// The jobs themselves, in boxes of `local`.
    pub fn start(
        self,
        config: &Config,
        local: Arc<dyn Executor>,
    ) -> Result<Option<Arc<LazyJobs>>, Failure> {
        let Some(store_dir) = self.store_dir else { return Ok(None) };
        let JobsConfig { workers, queue_max, retention, store_bytes_max, maxima, .. } = config.jobs;
        let settings = RunnerSettings {
            store_dir,
            store: StoreSettings { retention, bytes_max: store_bytes_max },
            policy: policy(config)?,
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

/// The machines of `config`, whose files are in no workspace.
fn machines(config: &Config, workspaces: &Path) -> Result<Option<VirtualMachines>, Failure> {
    let Some(config) = &config.firecracker else { return Ok(None) };
    let machines = VirtualMachines::of(config)?;
    match machines.private.iter().find(|path| path.starts_with(workspaces)) {
        None => Ok(Some(machines)),
        Some(path) => {
            let words = format!("{}: in a workspace, which every run is a copy of", path.display());
            Err(Failure::option("FIRECRACKER_WORK_DIR", words))
        }
    }
}

/// What the operator allows every job.
fn policy(config: &Config) -> Result<PolicyConfig, Failure> {
    let roots = match roots_for(config.address, &config.jobs) {
        Roots::Any => WorkspaceRoots::Any,
        Roots::Only(roots) => WorkspaceRoots::Only(canonical(&roots)?),
    };
    Ok(PolicyConfig { allowed_env: config.jobs.allowed_env.iter().cloned().collect(), roots })
}

/// The roots as they really are. One that is not there is a mistake to be told of.
fn canonical(roots: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let canonical = |root: &PathBuf| {
        let fault = |error: io::Error| format!("{}: {error}", root.display());
        root.canonicalize().map_err(|error| Failure::option("JOBS_WORKSPACE_ROOTS", fault(error)))
    };
    roots.iter().map(canonical).collect()
}

/// `path` from the root on, links resolved as far as it is there.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if let Some(path) = resolved(&path)? {
        return Ok(path);
    }
    let (parent, name) = (path.parent().unwrap_or(&path), path.file_name());
    let parent = resolved(parent)?.unwrap_or_else(|| parent.to_owned());
    Ok(name.map_or_else(|| parent.clone(), |name| parent.join(name)))
}

/// None where it is not there; a loop of links or a file on the way is a mistake to be told of.
fn resolved(path: &Path) -> io::Result<Option<PathBuf>> {
    match path.canonicalize() {
        Ok(path) => Ok(Some(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
