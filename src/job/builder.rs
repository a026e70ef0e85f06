//! A runner with its store and its boxes, opened in one go.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::runner::{Runner, RunnerSettings};
use crate::config::{Config, Overrides};
use crate::executor::{Capabilities, Executor, FoundProgram, Sandboxed, Task, Unavailable};
use crate::policy::{PolicyConfig, WorkspaceRoots};
use crate::store::{StoreError, StoreSettings};
use cofferdam_core::job::JobLimits;
use cofferdam_core::{NotStarted, OutputSink, RunReport, SetupFailure, Watch};
use cofferdam_sandbox::builtin_profile;
use cofferdam_sandbox::{RootSource, Sandbox, SandboxConfig};

/// The profile of every box.
const PROFILE: &str = "default";
/// A store's directory is its owner's alone.
const STORE_MODE: u32 = 0o700;

/// What becomes a [`Runner`]: boxes over the host's root, read-only and masked; workspaces
/// anywhere; the limits a service has as its maxima; records kept for ever; no variables but
/// those that a request allows itself.
///
/// Without privileges, [`enter_user_namespace`](cofferdam_sandbox::enter_user_namespace) has to have been called while the
/// process had one thread.
#[derive(Debug, Clone)]
#[must_use]
pub struct RunnerBuilder {
    store_dir: PathBuf,
    store: StoreSettings,
    allowed_env: BTreeSet<String>,
    roots: Option<Vec<PathBuf>>,
    maxima: JobLimits,
    rootfs: Option<PathBuf>,
    private: Vec<PathBuf>,
    strict: bool,
    local: Option<Arc<dyn Executor>>,
    firecracker: Option<Arc<dyn Executor>>,
}

/// Why there is no runner.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A directory that was named is not there.
    #[error("{}: {source}; want a directory", path.display())]
    Root {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The store's directory cannot be had.
    #[error("{}: {source}; want a directory to keep records in", path.display())]
    StoreDirectory {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No box can be made here.
    #[error(transparent)]
    Sandbox(#[from] SetupFailure),
}

impl Runner {
    /// Begins a runner whose records are kept in `store_dir`, which is made where it is not there.
    pub fn builder(store_dir: impl Into<PathBuf>) -> RunnerBuilder {
        // What a service has of which nothing is said.
        let (presets, _) = Config::read([], &Overrides::default());
        RunnerBuilder {
            store_dir: store_dir.into(),
            store: StoreSettings::default(),
            allowed_env: BTreeSet::new(),
            roots: None,
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
    /// Lets every request set these variables.
    pub fn allow_env<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.allowed_env.extend(names.into_iter().map(Into::into));
        self
    }

    /// Takes workspaces in or below these directories only.
    pub fn roots<T: Into<PathBuf>>(mut self, roots: impl IntoIterator<Item = T>) -> Self {
        let roots = roots.into_iter().map(Into::into);
        self.roots.get_or_insert_default().extend(roots);
        self
    }

    /// Refuses requests that ask for more.
    pub fn maxima(mut self, maxima: JobLimits) -> Self {
        self.maxima = maxima;
        self
    }

    /// How long records are kept, and how much of them.
    pub fn keep(mut self, store: StoreSettings) -> Self {
        self.store = store;
        self
    }

    /// Shows `directory` as the root of every box; nothing of the host is visible then.
    pub fn rootfs(mut self, directory: impl Into<PathBuf>) -> Self {
        self.rootfs = Some(directory.into());
        self
    }

    /// Paths of the host that no box may show, beside the store.
    pub fn private<T: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = T>) -> Self {
        self.private.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Whether a host that lacks any control is refused, instead of saying in every result which
    /// it lacks.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Runs `local_process` jobs elsewhere than in boxes of its own.
    pub fn local(mut self, backend: Arc<dyn Executor>) -> Self {
        self.local = Some(backend);
        self
    }

    /// Runs `firecracker` jobs there; they are `backend_unavailable` otherwise.
    pub fn firecracker(mut self, backend: Arc<dyn Executor>) -> Self {
        self.firecracker = Some(backend);
        self
    }

    /// Opens the store and the sandbox. Other processes may use the store at the same time. A job
    /// that a process left unfinished is finished as failed when it is looked at.
    ///
    /// # Errors
    /// A directory that is not there or a store that cannot be written; a host where no box can
    /// be made, unless [`RunnerBuilder::local`] was given.
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
                Arc::new(boxes(root, private, self.strict)?)
            }
        };
        let runner = Runner::open_shared(RunnerSettings {
            store_dir,
            store: self.store,
            policy: PolicyConfig { allowed_env: self.allowed_env, roots },
            maxima: self.maxima,
            local,
            firecracker: self.firecracker,
        })?;
        Ok(runner)
    }
}

/// Boxes of this host.
fn boxes(
    root: Option<PathBuf>,
    private: Vec<PathBuf>,
    strict: bool,
) -> Result<Sandboxed, SetupFailure> {
    let profile = builtin_profile(PROFILE)
        .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
    let root = root.map_or(RootSource::Host, RootSource::Directory);
    Ok(Sandboxed::new(Sandbox::open(SandboxConfig { profile, root, private, strict })?))
}

/// Made before there is a sandbox: only what is there by then can be kept out of sight wherever
/// links lead.
fn store_directory(path: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(STORE_MODE).create(path)?;
    fs::canonicalize(path)
}

fn existing(path: &Path) -> Result<PathBuf, BuildError> {
    fs::canonicalize(path).map_err(|source| BuildError::Root { path: path.to_owned(), source })
}

/// A backend of which nothing can be had here: jobs that ask for it end as
/// `backend_unavailable`, with the reason.
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
        _: Task<'_>,
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
    fn what_is_not_there_is_named() {
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
    fn a_host_without_boxes_is_told_by_the_result() {
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
    fn the_maxima_are_those_of_a_service_and_hold() {
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
