//! Builds a runner with its store and its sandbox.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::runner::{Runner, RunnerSettings};
use crate::config::{Config, NetworkConfig, Overrides};
use crate::egress::ServiceEgress;
use crate::executor::{
    Capabilities, Executor, FoundProgram, RunInput, SandboxExecutor, Unavailable,
};
use crate::policy::{PolicyConfig, WorkspaceRoots};
use crate::store::{StoreError, StoreSettings};
use cofferdam_core::job::JobLimits;
use cofferdam_core::{NotStarted, OutputSink, RunReport, SetupFailure, Watch};
use cofferdam_sandbox::engine::builtin_profile;
use cofferdam_sandbox::engine::{RootSource, SandboxConfig, SandboxHost};

/// The profile of every sandbox.
const PROFILE: &str = "default";
/// Only the owner of a store may access its directory.
const STORE_MODE: u32 = 0o700;

/// Builds a [`Runner`]. By default, sandboxes show the root of the host, read-only and with masked
/// paths; workspaces may be anywhere; the maxima are those of a service; records are kept for ever;
/// only variables that a request allows itself are set.
///
/// Without privileges, call [`enter_user_namespace`](cofferdam_sandbox::enter_user_namespace) first, while the process has
/// one thread.
#[derive(Debug, Clone)]
#[must_use]
pub struct RunnerBuilder {
    store_dir: PathBuf,
    store: StoreSettings,
    allowed_env: BTreeSet<String>,
    roots: Option<Vec<PathBuf>>,
    network: NetworkConfig,
    service_egress: ServiceEgress,
    maxima: JobLimits,
    rootfs: Option<PathBuf>,
    private: Vec<PathBuf>,
    strict: bool,
    local: Option<Arc<dyn Executor>>,
    firecracker: Option<Arc<dyn Executor>>,
}

/// Why a runner cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A directory cannot be opened.
    #[error("{}: {source}; want a directory", path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The directory of the store cannot be created or opened.
    #[error("{}: {source}; want a directory to keep records in", path.display())]
    StoreDirectory {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Sandboxes cannot be created here.
    #[error(transparent)]
    Sandbox(#[from] SetupFailure),
}

impl Runner {
    /// Begins a runner that keeps its records in `store_dir`, which is created if missing.
    pub fn builder(store_dir: impl Into<PathBuf>) -> RunnerBuilder {
        // The defaults of a service.
        let (presets, _) = Config::read([], &Overrides::default());
        RunnerBuilder {
            store_dir: store_dir.into(),
            store: StoreSettings::default(),
            allowed_env: BTreeSet::new(),
            roots: None,
            network: presets.jobs.network,
            service_egress: ServiceEgress::default(),
            maxima: presets.jobs.maxima,
            rootfs: None,
            private: Vec::new(),
            strict: false,
            local: None,
            firecracker: None,
        }
    }
}

impl RunnerBuilder {
    /// Allows every request to set these variables.
    pub fn allow_env<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.allowed_env.extend(names.into_iter().map(Into::into));
        self
    }

    /// Accepts workspaces in or below these directories only.
    pub fn roots<T: Into<PathBuf>>(mut self, roots: impl IntoIterator<Item = T>) -> Self {
        let roots = roots.into_iter().map(Into::into);
        self.roots.get_or_insert_default().extend(roots);
        self
    }

    /// Sets what requests may ask to reach. Without it, nothing.
    pub fn network(mut self, network: NetworkConfig) -> Self {
        self.network = network;
        self
    }

    /// Sets what jobs have in common with others that reach something: secrets that requests may name.
    pub fn service_egress(mut self, egress: ServiceEgress) -> Self {
        self.service_egress = egress;
        self
    }

    /// Refuses requests with higher limits.
    pub fn maxima(mut self, maxima: JobLimits) -> Self {
        self.maxima = maxima;
        self
    }

    /// Sets how long records are kept, and how much of them.
    pub fn keep(mut self, store: StoreSettings) -> Self {
        self.store = store;
        self
    }

    /// Uses `directory` as the root of every sandbox, which then shows nothing of the host.
    pub fn rootfs(mut self, directory: impl Into<PathBuf>) -> Self {
        self.rootfs = Some(directory.into());
        self
    }

    /// Hides these paths of the host from sandboxes, in addition to the store.
    pub fn private<T: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = T>) -> Self {
        self.private.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Whether to refuse a host that lacks a control. Otherwise every result lists the missing
    /// controls.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Runs `local_process` jobs with this backend instead of a sandbox.
    pub fn local(mut self, backend: Arc<dyn Executor>) -> Self {
        self.local = Some(backend);
        self
    }

    /// Runs `firecracker` jobs with this backend. Without one they end as `backend_unavailable`.
    pub fn firecracker(mut self, backend: Arc<dyn Executor>) -> Self {
        self.firecracker = Some(backend);
        self
    }

    /// Opens the store and the sandbox. Other processes may use the store at the same time. A job
    /// whose process died is finished as failed when it is next read.
    ///
    /// # Errors
    /// A directory is missing, the store cannot be written, or sandboxes cannot be created here,
    /// unless [`RunnerBuilder::local`] was given.
    pub fn build(self) -> Result<Runner, BuildError> {
        let store_dir = store_directory(&self.store_dir).map_err(|source| {
            BuildError::StoreDirectory { path: self.store_dir.clone(), source }
        })?;
        let roots = match &self.roots {
            None => WorkspaceRoots::Any,
            Some(roots) => {
                let roots = roots.iter().map(|root| existing(root));
                WorkspaceRoots::Only(roots.collect::<Result<_, _>>()?)
            }
        };
        let local = match self.local {
            Some(local) => local,
            None => {
                let root = self.rootfs.as_deref().map(existing).transpose()?;
                let mut private = self.private;
                private.push(store_dir.clone());
                Arc::new(sandboxes(root, private, self.strict)?)
            }
        };
        let runner = Runner::open_shared(RunnerSettings {
            store_dir,
            store: self.store,
            policy: PolicyConfig {
                allowed_env: self.allowed_env,
                roots,
                network_hosts: self.network.hosts.clone(),
            },
            egress: self.network.terms(&self.service_egress),
            maxima: self.maxima,
            local,
            firecracker: self.firecracker,
        })?;
        Ok(runner)
    }
}

/// The sandboxes of this host.
fn sandboxes(
    root: Option<PathBuf>,
    private: Vec<PathBuf>,
    strict: bool,
) -> Result<SandboxExecutor, SetupFailure> {
    let profile = builtin_profile(PROFILE)
        .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
    let root = root.map_or(RootSource::Host, RootSource::Directory);
    Ok(SandboxExecutor::new(SandboxHost::open(SandboxConfig { profile, root, private, strict })?))
}

/// Creates the directory before the sandbox is opened: only an existing directory can be masked
/// under every link to it.
fn store_directory(path: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(STORE_MODE).create(path)?;
    fs::canonicalize(path)
}

fn existing(path: &Path) -> Result<PathBuf, BuildError> {
    fs::canonicalize(path).map_err(|source| BuildError::Root { path: path.to_owned(), source })
}

/// A backend that is not available here: its jobs end as `backend_unavailable`, with the reason.
#[derive(Debug, Clone)]
pub struct Missing(pub SetupFailure);

impl Executor for Missing {
    fn describe(&self) -> Result<Capabilities, Unavailable> {
        Err(Unavailable(self.0.to_string()))
    }

    fn find_program(&self, _: &str) -> Result<Option<FoundProgram>, SetupFailure> {
        Ok(None)
    }

    fn execute(
        &self,
        _: RunInput<'_>,
        _: &Watch,
        _: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        Err(self.0.clone().into())
    }
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;
    use cofferdam_core::job::{ErrorCode, JobStatus, parse_request};

    fn missing() -> Arc<dyn Executor> {
        Arc::new(Missing(SetupFailure::from_words("clone", "not permitted")))
    }

    #[test]
    fn a_missing_directory_is_named() {
        let place = tempdir().unwrap();
        let builder = Runner::builder(place.path().join("store")).local(missing());
        let error = builder.clone().roots(["/no/such/root"]).build().unwrap_err();
        assert!(matches!(&error, BuildError::Root { path, .. } if path.ends_with("root")));
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Runner::builder(&file).local(missing()).build().unwrap_err();
        assert!(matches!(&error, BuildError::StoreDirectory { path, .. } if *path == file));
        assert!(builder.build().is_ok());
    }

    #[test]
    fn a_host_without_sandboxes_is_reported_in_the_result() {
        let place = tempdir().unwrap();
        let runner = Runner::builder(place.path()).local(missing()).build().unwrap();
        let request = br#"{"workspace":{"source":"local_path","path":"/"},
            "command":{"argv":["true"]},"policy":{"allowed_commands":["true"]}}"#;
        let result = runner.run(parse_request(request).unwrap()).unwrap();
        assert_eq!(result.status, JobStatus::BackendUnavailable);
        let error = result.error.unwrap();
        assert_eq!(error.code, ErrorCode::BackendUnavailable);
        assert!(error.message.contains("clone"), "{error}");
    }

    #[test]
    fn the_maxima_are_enforced() {
        let place = tempdir().unwrap();
        let runner = Runner::builder(place.path())
            .maxima(JobLimits { processes: 255, ..JobLimits::default() });
        let runner = runner.local(missing()).build().unwrap();
        let request = br#"{"workspace":{"source":"local_path","path":"/"},
            "command":{"argv":["true"]}}"#;
        let error = runner.run(parse_request(request).unwrap()).unwrap_err();
        assert_eq!(error.details["path"], "limits.processes");
    }
}
