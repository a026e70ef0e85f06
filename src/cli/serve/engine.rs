//! The code executor engine of a service, according to its configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::store_path::absolute;
use crate::cli::failure::{Failure, error_words};
use crate::config::{Config, EngineConfig};
use crate::egress::ServiceEgress;
use crate::executor::SandboxExecutor;
use crate::workspace::artifacts::LazyArtifacts;
use crate::workspace::files::EngineStores;
use crate::workspace::{EngineSettings, HostTrees, LazyEngineDir, SkillStore, WorkspaceService};
use cofferdam_tree::files::HostRoots;

/// The store of a service's engine, if the engine is enabled.
#[derive(Debug)]
pub struct ServedEngine {
    directory: Option<Arc<LazyEngineDir>>,
    /// Whether an option or variable names the store.
    is_asked_for: bool,
}

impl ServedEngine {
    /// The engine of `config`, with the store in `store_dir` if an option names it. `workspaces` is
    /// copied for every run, so it must not contain the store.
    pub fn new(
        config: &EngineConfig,
        store_dir: Option<PathBuf>,
        workspaces: &Path,
    ) -> Result<Self, Failure> {
        if !config.enabled {
            return Ok(Self { directory: None, is_asked_for: false });
        }
        let is_asked_for = store_dir.is_some() || config.store_is_asked_for();
        let store_dir = store_dir.unwrap_or_else(|| config.store_dir.clone());
        let fault = |words: &str| {
            Failure::option("--engine-dir", format!("{}: {words}", store_dir.display()))
        };
        let path = absolute(&store_dir).map_err(|error| {
            fault(&format!("{}; want a directory for the engine", error_words(&error)))
        })?;
        if !path.starts_with(workspaces) {
            let directory = LazyEngineDir::new(path, config.maxima.store_bytes);
            return Ok(Self { directory: Some(Arc::new(directory)), is_asked_for });
        }
        if is_asked_for {
            return Err(fault("in a workspace, which is copied for every run"));
        }
        log::warn!(
            "the engine is disabled: its store would be in the workspace; set ENGINE_STORE_DIR, or \
             ENGINE=off"
        );
        Ok(Self { directory: None, is_asked_for })
    }

    /// Paths that no sandbox may show.
    pub fn private(&self) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.path().to_owned())
    }

    /// How many sandboxes and workspaces there may be at once, each with a host id of its own.
    pub fn sandboxes(&self, config: &EngineConfig) -> usize {
        if self.directory.is_some() { config.sandboxes() } else { 0 }
    }

    /// The artifacts. A store that the operator has named is opened at once; any other when it is
    /// first used, so that services which keep nothing do not compete for it.
    pub fn artifacts(&self, config: &EngineConfig) -> Result<Option<Arc<LazyArtifacts>>, Failure> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let artifacts = LazyArtifacts::new(Arc::clone(directory), config.maxima.artifact_bytes);
        if self.is_asked_for {
            artifacts.open().map_err(|error| Failure::option("--engine-dir", error))?;
        }
        Ok(Some(Arc::new(artifacts)))
    }

    /// Where the engine's inputs come from and its outputs go to. No directory of the host that clients may name
    /// holds any of `private`, or lies in it.
    pub fn stores(
        &self,
        config: &EngineConfig,
        artifacts: Option<&Arc<LazyArtifacts>>,
        private: &[PathBuf],
    ) -> Result<EngineStores, Failure> {
        let Some(directory) = &self.directory else { return Ok(EngineStores::default()) };
        let fault = |words: String| Failure::option("ENGINE_HOST_ROOTS", words);
        for root in &config.host_roots {
            let overlaps = |path: &PathBuf| path.starts_with(root) || root.starts_with(path);
            if private.iter().any(overlaps) {
                let words = "holds files that only the service may read";
                return Err(fault(format!("{}: {words}", root.display())));
            }
        }
        let host_roots = HostRoots::open(&config.host_roots);
        Ok(EngineStores {
            artifacts: artifacts.cloned(),
            skills: Some(SkillStore::new(Arc::clone(directory))),
            host_roots: host_roots.map_err(|error| fault(error.to_string()))?,
        })
    }

    /// Starts the engine with `stores`. Its programs run in sandboxes of `local`. What they reach is part of
    /// `egress`.
    pub fn start(
        self,
        config: &Config,
        local: &Arc<SandboxExecutor>,
        stores: EngineStores,
        egress: &ServiceEgress,
    ) -> Result<Option<Arc<WorkspaceService>>, Failure> {
        let Some(directory) = self.directory else { return Ok(None) };
        let trees = match HostTrees::open(Arc::clone(local), Arc::clone(&directory)) {
            Ok(trees) => trees,
            Err(failure) => {
                log::warn!("workspaces are disabled: {failure}; ENGINE=off disables the engine");
                return Ok(None);
            }
        };
        let passed = config.env_allow.iter();
        let passed = passed.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)));
        let base_env = passed.collect();
        let store = Some(directory);
        let mut settings = EngineSettings::from(&config.engine);
        settings.network.egress.service = egress.clone();
        let settings = EngineSettings { base_env, store, ..settings };
        let service = WorkspaceService::start(settings, Box::new(trees));
        Ok(Some(Arc::new(service.map_err(Failure::Serve)?.with_stores(stores))))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::config::Overrides;

    #[test]
    fn a_root_of_inputs_is_a_directory_without_links_that_holds_nothing_private() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let at = |name: &str| place.join(name);
        for name in ["inputs/inner", "store", "storehouse"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        symlink("inputs", at("link")).unwrap();
        let engine = |root: &Path| {
            let environment = [
                ("ENGINE_HOST_ROOTS".into(), root.into()),
                ("ENGINE_STORE_DIR".into(), at("store").into()),
            ];
            let (config, problems) = Config::read(environment, &Overrides::default());
            assert!(problems.0.is_empty(), "{problems:?}");
            let engine = ServedEngine::new(&config.engine, None, &at("languages")).unwrap();
            let private: Vec<PathBuf> = engine.private().into_iter().collect();
            engine.stores(&config.engine, None, &private).map_err(|failure| failure.to_string())
        };
        for root in ["inputs", "inputs/inner", "storehouse"] {
            assert!(engine(&at(root)).is_ok(), "{root}");
        }
        for (root, reason) in [
            ("store", "only the service may read"),
            ("store/inner", "only the service may read"),
            ("", "only the service may read"),
            ("link", "ELOOP"),
            ("none", "ENOENT"),
        ] {
            let refused = engine(&at(root)).unwrap_err();
            assert!(refused.contains("ENGINE_HOST_ROOTS"), "{refused}");
            assert!(refused.contains(reason), "{root}: {refused}");
        }
    }
}
