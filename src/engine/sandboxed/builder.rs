//! Builds an engine with its sandboxes.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::sandbox_engine::SandboxEngine;
use crate::config::{Config, EngineConfig, Overrides, TokenName};
use crate::executor::SandboxExecutor;
use crate::workspace::artifacts::LazyArtifacts;
use crate::workspace::files::EngineStores;
use crate::workspace::{EngineSettings, HostTrees, LazyEngineDir, SkillStore, WorkspaceService};
use cofferdam_core::SetupFailure;
use cofferdam_sandbox::engine::{RootSource, SandboxConfig, SandboxHost, builtin_profile};
use cofferdam_tree::files::HostRoots;

/// The profile of every sandbox.
const PROFILE: &str = "default";

/// Builds a [`SandboxEngine`]. By default, sandboxes show the root of the host, read-only and with masked
/// paths; defaults and maxima are those of a service; programs get no variable of this process.
///
/// Without privileges, call [`enter_user_namespace`](cofferdam_sandbox::enter_user_namespace) first, while
/// the process has one thread.
#[derive(Debug, Clone)]
#[must_use]
pub struct SandboxEngineBuilder {
    config: EngineConfig,
    rootfs: Option<PathBuf>,
    private: Vec<PathBuf>,
    strict: bool,
    env: BTreeMap<String, String>,
    interrupt_wait: Option<Duration>,
}

/// Why an engine cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum EngineBuildError {
    /// A directory cannot be opened.
    #[error("{}: {source}; want a directory", path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("start the engine's threads: {0}")]
    Threads(io::Error),
    /// A directory that inputs may be in cannot be opened.
    #[error("host root: {0}")]
    HostRoots(String),
    /// Sandboxes or file systems of workspaces cannot be created here.
    #[error(transparent)]
    Sandbox(#[from] SetupFailure),
}

impl SandboxEngine {
    /// Begins an engine that keeps in `store_dir` what is on disk. The directory is created when it is first
    /// needed; one process at a time has it.
    pub fn builder(store_dir: impl Into<PathBuf>) -> SandboxEngineBuilder {
        // The defaults of a service.
        let (presets, _) = Config::read([], &Overrides::default());
        SandboxEngineBuilder {
            config: EngineConfig { store_dir: store_dir.into(), ..presets.engine },
            rootfs: None,
            private: Vec::new(),
            strict: false,
            env: BTreeMap::new(),
            interrupt_wait: None,
        }
    }
}

impl SandboxEngineBuilder {
    /// Changes the defaults and maxima of everything, as the variables `ENGINE_*` of a service do.
    pub fn limits(mut self, change: impl FnOnce(&mut EngineConfig)) -> Self {
        change(&mut self.config);
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

    /// Lets inputs be staged from these directories of the host, and from below them. By default from none.
    pub fn host_roots<T: Into<PathBuf>>(mut self, roots: impl IntoIterator<Item = T>) -> Self {
        self.config.host_roots.extend(roots.into_iter().map(Into::into));
        self
    }

    /// Whether to refuse a host that lacks a control. Otherwise every result lists the missing controls.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Sets a variable of every program. Those of workspaces and programs win.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets how long interrupted code of a context may go on before its kernel is killed and its state is
    /// lost: by default 1 s.
    pub fn interrupt_wait(mut self, wait: Duration) -> Self {
        self.interrupt_wait = Some(wait);
        self
    }

    /// Tries what this host can do, and starts the engine.
    ///
    /// # Errors
    /// A directory is missing, a thread cannot be started, or sandboxes cannot be created here.
    pub fn build(self) -> Result<SandboxEngine, EngineBuildError> {
        let Self { config, rootfs, private, strict, env, interrupt_wait } = self;
        let root = rootfs.as_deref().map(existing).transpose()?;
        let store_dir = std::path::absolute(&config.store_dir)
            .map_err(|source| EngineBuildError::Root { path: config.store_dir.clone(), source })?;
        let private = [private, vec![store_dir.clone()]].concat();
        let directory = Arc::new(LazyEngineDir::new(store_dir, config.maxima.store_bytes));
        let stores = stores(&config, &private, &directory)?;
        let executor = Arc::new(sandboxes(root, private, strict, config.sandboxes())?);
        let trees = HostTrees::open(executor, Arc::clone(&directory))?;
        let defaults = EngineSettings::from(&config);
        let settings = EngineSettings {
            base_env: env,
            store: Some(directory),
            interrupt_wait: interrupt_wait.unwrap_or(defaults.interrupt_wait),
            ..defaults
        };
        let service = WorkspaceService::start(settings, Box::new(trees));
        let service = service.map_err(EngineBuildError::Threads)?.with_stores(stores);
        let service = Arc::new(service);
        Ok(SandboxEngine { service, owner: TokenName::default() })
    }
}

/// Where inputs come from and outputs go to. No root of the host holds any of `private`, or lies in it.
fn stores(
    config: &EngineConfig,
    private: &[PathBuf],
    directory: &Arc<LazyEngineDir>,
) -> Result<EngineStores, EngineBuildError> {
    for root in &config.host_roots {
        let overlaps = |path: &PathBuf| path.starts_with(root) || root.starts_with(path);
        if private.iter().any(overlaps) {
            let words = format!("{}: holds what sandboxes may not see", root.display());
            return Err(EngineBuildError::HostRoots(words));
        }
    }
    let host_roots = HostRoots::open(&config.host_roots)
        .map_err(|error| EngineBuildError::HostRoots(error.to_string()))?;
    let artifacts = LazyArtifacts::new(Arc::clone(directory), config.maxima.artifact_bytes);
    let skills = Some(SkillStore::new(Arc::clone(directory)));
    Ok(EngineStores { artifacts: Some(Arc::new(artifacts)), skills, host_roots })
}

/// The sandboxes of this host, up to `count` at once.
fn sandboxes(
    root: Option<PathBuf>,
    private: Vec<PathBuf>,
    strict: bool,
    count: usize,
) -> Result<SandboxExecutor, SetupFailure> {
    let profile = builtin_profile(PROFILE)
        .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
    let root = root.map_or(RootSource::Host, RootSource::Directory);
    let host = SandboxHost::open(SandboxConfig { profile, root, private, strict })?;
    let mut executor = SandboxExecutor::new(host);
    executor.prepare_for(count, 0)?;
    Ok(executor)
}

fn existing(path: &Path) -> Result<PathBuf, EngineBuildError> {
    std::fs::canonicalize(path)
        .map_err(|source| EngineBuildError::Root { path: path.to_owned(), source })
}
