//! What evaluates on this host: sandboxes, file systems, the pipeline.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::failure::Failure;
use crate::cli::options::sandbox_options::{PROFILE, root_source};
use crate::config::{Config, EvaluationConfig, EvaluationSandbox, Isolation};
use crate::egress::{EgressTerms, ServiceEgress};
use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::cache::CacheSpace;
use crate::evaluation::download::{Archives, ArchivesSettings};
use crate::evaluation::pipeline::{AgentPrograms, Pipeline, PipelineParts, PipelineSettings};
use crate::evaluation::repository::{Repositories, RepositoryRoots, RepositorySettings};
use crate::evaluation::task::ArchiveBounds;
use crate::evaluation::trees::session_base::{SessionBaseError, SessionDirectory};
use crate::evaluation::trees::{EvaluationRoot, EvaluationRoots, EvaluationTrees, RootOpener};
use crate::executor::SandboxExecutor;
use cofferdam_core::SetupFailure;
use cofferdam_sandbox::engine::{SandboxConfig, SandboxHost, builtin_profile};

/// The cache in a store.
const CACHE: &str = "cache";
const IMAGES: &str = "images";

/// What evaluates on this host, and the directory of its files.
#[derive(Debug)]
pub struct EvaluationHost {
    // Dropped before the directory, in which its images are.
    pipeline: Pipeline,
    _session: SessionDirectory,
}

/// Opens the root file systems of evaluations.
#[derive(Clone)]
struct RootFactory {
    private: Vec<PathBuf>,
    strict: bool,
    host_ids: usize,
    images: PathBuf,
}

impl EvaluationHost {
    /// Opens what evaluates as `config` says. The cache is in `store_dir` unless the configuration has a place
    /// for it, and is gone with this process if there is neither. What evaluations reach is part of `egress`.
    /// No sandbox shows any of `private`.
    pub fn open(
        config: &Config,
        store_dir: Option<&Path>,
        egress: &ServiceEgress,
        private: &[PathBuf],
    ) -> Result<Self, Failure> {
        let evaluations = &config.evaluations;
        let session = SessionDirectory::open(&evaluations.workspace_base)
            .map_err(|error| base_failure(&error))?;
        let cache = cache_directory(evaluations, store_dir, session.path())?;
        let images = session.path().join(IMAGES);
        std::fs::create_dir(&images).map_err(cannot("make directory"))?;
        let own = [evaluations.workspace_base.clone(), cache.clone()];
        let bytes_max = evaluations.cache.bytes_max;
        let lasts = evaluations.cache.directory.is_some() || store_dir.is_some();
        let make = if lasts { CacheSpace::lasting } else { CacheSpace::of_process };
        let cache = Arc::new(make(cache, bytes_max));
        let factory = RootFactory {
            private: [private, &own].concat(),
            strict: config.isolation == Isolation::Strict,
            host_ids: evaluations.host_ids(),
            images,
        };
        let egress = evaluations.network.terms(egress);
        let parts = PipelineParts {
            roots: roots(config, factory)?,
            archives: archives(evaluations, &egress, Arc::clone(&cache)),
            repositories: repositories(evaluations, &egress, cache),
            programs: AgentPrograms::new(bounds(evaluations)),
        };
        let settings = settings(evaluations, egress, session.path())?;
        Ok(Self { pipeline: Pipeline::new(settings, parts), _session: session })
    }

    /// Runs evaluations.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }
}

impl RootFactory {
    /// File systems on disk where this host can mount images, else in memory.
    fn open(&self, root: Option<&Path>) -> Result<EvaluationTrees, Failure> {
        let executor = Arc::new(self.executor(root)?);
        EvaluationTrees::open(Arc::clone(&executor), Some(&self.images))
            .or_else(|failure| {
                log::info!("the files of evaluations are in memory: {failure}");
                EvaluationTrees::open(executor, None)
            })
            .map_err(Failure::Refused)
    }

    fn executor(&self, root: Option<&Path>) -> Result<SandboxExecutor, Failure> {
        let root = root_source(root).map_err(Failure::Usage)?;
        let profile = builtin_profile(PROFILE)
            .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
        let private = self.private.clone();
        let settings = SandboxConfig { profile, root, private, strict: self.strict };
        let sandbox = SandboxHost::open(settings).map_err(Failure::Refused)?;
        let mut executor = SandboxExecutor::new(sandbox);
        executor.prepare_for(self.host_ids, 0).map_err(Failure::Refused)?;
        Ok(executor)
    }
}

fn roots(config: &Config, factory: RootFactory) -> Result<EvaluationRoots, Failure> {
    let rootfs = config.rootfs.as_deref();
    let name = rootfs.map_or_else(String::new, |path| path.display().to_string());
    let own = EvaluationRoot { name, trees: factory.open(rootfs)? };
    let roots = EvaluationRoots::only(own);
    let Some(directory) = config.evaluations.rootfs_dir.clone() else { return Ok(roots) };
    if !directory.is_dir() {
        let words = format!("{}: want a directory", directory.display());
        return Err(Failure::option("EVAL_ROOTFS_DIR", words));
    }
    let opener: RootOpener = Box::new(move |path| {
        let words = |failure: Failure| SetupFailure::from_words("rootfs", failure.to_string());
        factory.open(Some(path)).map_err(words)
    });
    Ok(roots.with_directory(directory, opener))
}

fn cache_directory(
    config: &EvaluationConfig,
    store_dir: Option<&Path>,
    session: &Path,
) -> Result<PathBuf, Failure> {
    let in_store = || store_dir.unwrap_or(session).join(CACHE);
    let directory = config.cache.directory.clone().unwrap_or_else(in_store);
    let fault = |error| Failure::option("EVAL_CACHE_DIR", error);
    std::path::absolute(directory).map_err(fault)
}

fn archives(config: &EvaluationConfig, egress: &EgressTerms, cache: Arc<CacheSpace>) -> Archives {
    let settings = ArchivesSettings {
        egress: egress.clone(),
        cache,
        archive_bytes_max: config.sizes.archive_bytes_max,
        timeout: None,
    };
    Archives::new(settings)
}

fn repositories(
    config: &EvaluationConfig,
    egress: &EgressTerms,
    cache: Arc<CacheSpace>,
) -> Repositories {
    let settings = RepositorySettings {
        egress: egress.clone(),
        cache,
        clone_timeout: config.times.clone,
        repository_bytes_max: config.sizes.repository_bytes_max,
        base_bytes_max: config.sizes.base_bytes_max,
        install_timeout: config.times.install,
        install_network: config.install_network.clone(),
        clone_network: config.clone_network.clone(),
        install_env: config.install_env.clone(),
        bounds: bounds(config),
    };
    Repositories::new(settings)
}

fn settings(
    config: &EvaluationConfig,
    egress: EgressTerms,
    session: &Path,
) -> Result<PipelineSettings, Failure> {
    let missing = |path: PathBuf| {
        Failure::option("EVAL_REPO_ROOTS", format!("{}: want a directory", path.display()))
    };
    Ok(PipelineSettings {
        bounds: bounds(config),
        disk_bytes_max: config.sizes.disk_bytes_max,
        agent_timeout: config.times.agent,
        test_timeout: config.times.test,
        session_timeout: config.times.session,
        output_bytes_max: config.sizes.output_bytes_max,
        patch_bytes_max: config.sizes.patch_bytes_max,
        archive: ArchiveBounds {
            archive_bytes_max: config.sizes.archive_bytes_max,
            unpacked_bytes_max: config.sizes.unpacked_bytes_max,
        },
        repository_roots: RepositoryRoots::open(&config.repository_roots).map_err(missing)?,
        agent_hosts: config.network.hosts.entries().to_vec(),
        agent_network: config.agent_network.clone(),
        egress,
        staging: session.join("shown"),
        cache_shared: config.cache.is_shared,
    })
}

fn base_failure(error: &SessionBaseError) -> Failure {
    match error {
        SessionBaseError::Refused { .. } => Failure::Usage(error.to_string()),
        // A host whose files are read-only has no place for it.
        SessionBaseError::Failed { .. } => {
            Failure::Refused(SetupFailure::from_words("WORKSPACE_BASE", error.to_string()))
        }
    }
}

fn bounds(config: &EvaluationConfig) -> PhaseBounds {
    let EvaluationSandbox { memory_bytes_max, processes_max, cpus_milli_max } = config.sandbox;
    PhaseBounds { memory_bytes_max, processes_max, cpus_milli_max }
}

fn cannot(step: &'static str) -> impl Fn(std::io::Error) -> SetupFailure {
    move |error| SetupFailure::from_io(step, &error)
}
