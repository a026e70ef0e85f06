//! The phases up to the base: find the commit, make the repository, install.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::base::{Base, BaseKey, Bases, ReachedNetwork};
use super::checkout::{check_out, commit_files, keep_git, restore_git};
use super::deps::{VENV, is_for_install};
use super::error::RepositoryError;
use super::git::GitSandbox;
use super::install::{Install, InstallOutput, clear_tmp};
use super::located::LocatedCommit;
use super::mirror::{MirrorFetch, MirrorStore};
use super::revision::Revision;
use super::source::RepositorySource;
use crate::egress::rules::{NetworkDenial, WithheldValues};
use crate::egress::secret::Placeholders;
use crate::egress::{EgressGrant, EgressLog, EgressTerms};
use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::cache::{CacheKind, CacheSpace, MakerTurn, Making, WaitEnded, is_raised};
use crate::evaluation::task::TaskBounds;
use crate::evaluation::trees::{EvaluationRoot, PhaseTree};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::digest::sha256_of;
use cofferdam_core::{NetworkObject, SetupFailure, WorkspacePath};
use cofferdam_sandbox::engine::DiskSpace;
use cofferdam_tree::{StopCheck, TreeLimits};

/// The steps, as records of egress name them.
const CLONE_STEP: &str = "cloning_repo";
const INSTALL_STEP: &str = "installing_deps";
/// Files of a repository, or of a base, for each of which there is room.
const BYTES_PER_INODE: u64 = 4096;

/// What holds for every evaluation.
#[derive(Debug)]
pub struct RepositorySettings {
    /// What holds for all that sandboxes reach.
    pub egress: EgressTerms,
    /// The caches on disk.
    pub cache: Arc<CacheSpace>,
    /// How long git may take.
    pub clone_timeout: Duration,
    /// The most bytes that git fetches.
    pub repository_bytes_max: u64,
    /// The most bytes of a base.
    pub base_bytes_max: u64,
    /// How long all commands of install may take.
    pub install_timeout: Duration,
    /// What install may reach.
    pub install_network: NetworkObject,
    /// Rules over what git sends, and the hosts of repositories, if it names any.
    pub clone_network: NetworkObject,
    /// Variables of install besides those of the task. What holds credentials is left out.
    pub install_env: BTreeMap<String, String>,
    /// What each sandbox may use.
    pub bounds: PhaseBounds,
}

/// Where the files of a task come from.
#[derive(Debug)]
pub enum BaseSource {
    /// A commit of a repository.
    Commit {
        /// The repository.
        repository: RepositorySource,
        /// The commit.
        revision: Revision,
    },
    /// A directory, which becomes the only commit. It holds no `.git`.
    Files {
        /// The directory.
        directory: OwnedFd,
        /// The digest of its files.
        digest: String,
    },
}

/// What a base is made for.
pub struct BaseRequest<'a> {
    /// Whose cache is used: the name of a token, or one for all.
    pub owner: &'a str,
    /// The root file system.
    pub root: &'a EvaluationRoot,
    /// Where the files come from.
    pub source: &'a BaseSource,
    /// The commands of install.
    pub install: &'a [String],
    /// Whether the evaluation goes on if one of them fails.
    pub goes_on: bool,
    /// The task's variables.
    pub env: &'a BTreeMap<String, String>,
    /// What the task asks for at most. It is no part of a digest: a base that was made with less is the same.
    pub asked: TaskBounds,
    /// Where sandboxes see the repository.
    pub place: &'a WorkspacePath,
    /// Whether nothing that was kept is used.
    pub fresh: bool,
    /// Cancels it.
    pub cancel: &'a CancelToken,
    /// When it has to be over.
    pub deadline: Deadline,
    /// Records what its sandboxes reach.
    pub egress: &'a Arc<EgressLog>,
    /// Gets what install prints.
    pub output: Option<Arc<dyn InstallOutput>>,
}

/// A base, and whether it was there before.
#[derive(Debug, Clone)]
pub struct MadeBase {
    /// The base.
    pub base: Arc<Base>,
    /// Whether nothing was installed for it.
    pub cached: bool,
}

/// What the first phase found.
#[derive(Debug, Clone)]
pub struct FoundCommit {
    /// The full hash; empty for files, whose commit is not made yet.
    pub commit: String,
    /// Whether nothing was fetched for it.
    pub cached: bool,
    located: Option<LocatedCommit>,
}

/// Makes bases. One service has one.
#[derive(Debug)]
pub struct Repositories {
    pub(super) settings: RepositorySettings,
    mirrors: Arc<MirrorStore>,
    pub(super) bases: Bases,
    making: Making,
}

impl Repositories {
    /// Over the cache, whose directory is made with the first entry.
    pub fn new(mut settings: RepositorySettings) -> Self {
        settings.install_env.retain(|name, value| is_for_install(name, value));
        let cache = &settings.cache;
        let mirrors = Arc::new(MirrorStore::new(cache.directory(CacheKind::Mirrors)));
        let used = Arc::clone(&mirrors);
        cache.protect(move |path| used.is_in_use(path));
        let bases = Bases::new(Arc::clone(cache));
        Self { settings, mirrors, bases, making: Making::default() }
    }

    /// The caches.
    pub fn cache(&self) -> &CacheSpace {
        &self.settings.cache
    }

    /// The step `cloning_repo`: finds the commit, and fetches it if it is not here. For a full hash whose
    /// base is kept, nothing is looked at.
    ///
    /// # Errors
    /// The repository has no such commit, may not be reached, is too large, or git failed.
    pub fn find_commit(&self, request: &BaseRequest<'_>) -> Result<FoundCommit, RepositoryError> {
        let BaseSource::Commit { repository, revision } = request.source else {
            return Ok(FoundCommit { commit: String::new(), cached: false, located: None });
        };
        if let Revision::Full(commit) = revision
            && !request.fresh
            && self.bases.has(&self.digest(request, commit)?)
        {
            return Ok(FoundCommit { commit: commit.clone(), cached: true, located: None });
        }
        let located = self.locate(request, repository, revision)?;
        let LocatedCommit { commit, cached, .. } = &located;
        Ok(FoundCommit { commit: commit.clone(), cached: *cached, located: Some(located) })
    }

    /// The step `installing_deps`: the base of the commit that was found.
    ///
    /// # Errors
    /// An object is missing or malformed, or install failed.
    pub fn base(
        &self,
        request: &BaseRequest<'_>,
        found: &FoundCommit,
    ) -> Result<MadeBase, RepositoryError> {
        let digest = self.digest(request, &found.commit)?;
        self.kept_or_made(request, digest, |digest| self.make(request, found, digest))
    }

    /// The base with that digest: the one that is kept, or else what `make` makes, once.
    pub(super) fn kept_or_made(
        &self,
        request: &BaseRequest<'_>,
        digest: String,
        make: impl FnOnce(String) -> Result<Base, RepositoryError>,
    ) -> Result<MadeBase, RepositoryError> {
        let _turn = self.enter(&digest, request)?;
        let is_over = || is_raised(request.cancel) || request.deadline.passed();
        let room = (&request.root.trees, room(self.settings.base_bytes_max));
        if !request.fresh
            && let Some(base) = self.bases.find(&digest, room, StopCheck(&is_over))
        {
            return Ok(MadeBase { base, cached: true });
        }
        let base = Arc::new(make(digest)?);
        // What an install that failed has left is made anew.
        if base.install_failure.is_none() {
            self.bases.keep(&base, StopCheck(&is_over));
        }
        Ok(MadeBase { base, cached: false })
    }

    fn make(
        &self,
        request: &BaseRequest<'_>,
        found: &FoundCommit,
        digest: String,
    ) -> Result<Base, RepositoryError> {
        let settings = &self.settings;
        let is_over = || is_raised(request.cancel) || request.deadline.passed();
        let stop = StopCheck(&is_over);
        let bytes = settings.base_bytes_max;
        let tree = request.root.trees.create(room(bytes))?;
        let deadline = shorter(settings.clone_timeout, request.deadline);
        let git = GitSandbox::new(&tree, settings.bounds, request.cancel, deadline, bytes)?;
        let base_commit = self.fill(request, found, &git, stop)?;
        if !request.install.is_empty() {
            keep_git(&tree, stop)?;
        }
        clear_tmp(&tree, stop)?;
        let install_failure = self.install(request, &tree)?;
        if !request.install.is_empty() {
            restore_git(&tree, stop)?;
            clear_tmp(&tree, stop)?;
        }
        let files = tree.freeze(stop)?;
        Ok(Base { files, base_commit, digest, made_at: SystemTime::now(), install_failure })
    }

    /// Fills the empty workspace; returns its commit.
    fn fill(
        &self,
        request: &BaseRequest<'_>,
        found: &FoundCommit,
        git: &GitSandbox<'_>,
        stop: StopCheck<'_>,
    ) -> Result<String, RepositoryError> {
        match (request.source, &found.located) {
            (BaseSource::Files { directory, .. }, _) => {
                let bytes_max = self.settings.base_bytes_max;
                let limits = TreeLimits { bytes_max, ..TreeLimits::default() };
                commit_files(git, directory.as_fd(), &limits, stop)
            }
            (BaseSource::Commit { .. }, Some(located)) => {
                check_out(git, located)?;
                Ok(located.commit.clone())
            }
            (BaseSource::Commit { repository, revision }, None) => {
                // Its base was dropped from the cache meanwhile.
                let located = self.locate(request, repository, revision)?;
                check_out(git, &located)?;
                Ok(located.commit)
            }
        }
    }

    /// Runs the commands of install. Returns the first failure that the task goes on in spite of.
    fn install(
        &self,
        request: &BaseRequest<'_>,
        tree: &PhaseTree,
    ) -> Result<Option<RepositoryError>, RepositoryError> {
        let settings = &self.settings;
        let env = self.install_env(request);
        let egress = self.install_grant(request)?;
        let asked = request.asked.install_timeout_secs.map(Duration::from_secs);
        let timeout = asked.unwrap_or(Duration::MAX).min(settings.install_timeout);
        let install = Install {
            commands: request.install,
            env: &env,
            place: request.place,
            egress: egress.as_ref(),
            bounds: settings.bounds.within(request.asked),
            cancel: request.cancel,
            deadline: shorter(timeout, request.deadline),
            goes_on: request.goes_on,
            output: request.output.clone(),
        };
        install.make_venv(tree, VENV, None)?;
        install.run_all(tree)
    }

    /// What the commands of install may reach.
    pub(super) fn install_grant(
        &self,
        request: &BaseRequest<'_>,
    ) -> Result<Option<EgressGrant>, RepositoryError> {
        let network = &self.settings.install_network;
        let is_asked = !network.hosts().is_empty() && !request.install.is_empty();
        is_asked.then(|| self.grant(network, request, INSTALL_STEP)).transpose()
    }

    /// Finds the commit; a mirror that turns out to be broken is made anew, once.
    fn locate(
        &self,
        request: &BaseRequest<'_>,
        repository: &RepositorySource,
        revision: &Revision,
    ) -> Result<LocatedCommit, RepositoryError> {
        let settings = &self.settings;
        let bytes = settings.repository_bytes_max;
        let deadline = shorter(settings.clone_timeout, request.deadline);
        let (bounds, cancel) = (settings.bounds, request.cancel);
        let url = match repository {
            RepositorySource::Directory { git_directory } => {
                let tree = request.root.trees.create(room(bytes))?;
                let git = GitSandbox::new(&tree, bounds, cancel, deadline, bytes)?;
                return LocatedCommit::in_directory(git_directory, revision, &git);
            }
            RepositorySource::Url { url, .. } => url,
        };
        let key = sha256_of(format!("{}\0{url}", request.owner).as_bytes());
        let _turn = self.enter(&key, request)?;
        let before = self.mirrors.find(&key).filter(|_| !request.fresh);
        if let (Revision::Full(commit), Some(mirror)) = (revision, &before)
            && mirror.has_fetched(commit)
        {
            return Ok(LocatedCommit::in_mirror(mirror, commit.clone(), mirror.listed(), true));
        }
        let fetch = |before| {
            let tree = request.root.trees.create(room(bytes))?;
            let network = repository.network(&settings.clone_network);
            let network =
                network.map_err(|denied| RepositoryError::UrlDenied { reason: denied.0 })?;
            let egress = self.grant(&network, request, CLONE_STEP)?;
            let git = GitSandbox::new(&tree, bounds, cancel, deadline, bytes)?;
            let (store, key) = (&self.mirrors, key.as_str());
            let fetch = MirrorFetch { store, key, url, git, egress, bytes_max: bytes };
            fetch.locate(revision, before)
        };
        let located = match fetch(before.clone()) {
            Err(RepositoryError::CloneFailed { limit: None, message }) if before.is_some() => {
                log::warn!("a mirror is made anew: {message}");
                self.mirrors.discard(&key);
                fetch(None)
            }
            located => located,
        }?;
        settings.cache.make_room(&self.mirrors.directory().join(&key));
        Ok(located)
    }

    fn enter(&self, key: &str, request: &BaseRequest<'_>) -> Result<MakerTurn, RepositoryError> {
        self.making.enter(key, request.cancel, request.deadline).map_err(|ended| match ended {
            WaitEnded::Cancelled => RepositoryError::Cancelled,
            WaitEnded::Expired => RepositoryError::Expired,
        })
    }

    fn grant(
        &self,
        network: &NetworkObject,
        request: &BaseRequest<'_>,
        step: &str,
    ) -> Result<EgressGrant, RepositoryError> {
        let (egress, placeholders) = (&self.settings.egress, Placeholders::new_for(network));
        // What needs a secret that the owner may not use is refused. Where all share the cache, that is every
        // secret that is not for all.
        let withheld = WithheldValues::Missing;
        let read = egress.network(network, request.owner, &placeholders, withheld);
        let denied =
            |error: NetworkDenial| RepositoryError::UrlDenied { reason: error.to_string() };
        let log = Arc::clone(request.egress);
        Ok(egress.grant(read.map_err(denied)?, log, Some(step.to_owned())))
    }

    fn install_env(&self, request: &BaseRequest<'_>) -> BTreeMap<String, String> {
        let mut env = self.settings.install_env.clone();
        env.extend(request.env.clone());
        env
    }

    fn digest(&self, request: &BaseRequest<'_>, commit: &str) -> Result<String, RepositoryError> {
        let repository = match request.source {
            BaseSource::Commit { repository, .. } => repository.identity(),
            BaseSource::Files { digest, .. } => format!("files {digest}"),
        };
        let workdir = request.place.as_path().display().to_string();
        let key = BaseKey {
            owner: request.owner,
            repository: &repository,
            commit,
            install: request.install,
            env: &self.install_env(request),
            network: ReachedNetwork::of(&self.settings.install_network),
            workdir: &workdir,
            rootfs: &request.root.name,
        };
        key.digest()
    }
}

impl fmt::Debug for BaseRequest<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BaseRequest")
            .field("owner", &self.owner)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// Room for that many bytes, in files of a usual size.
pub(super) fn room(bytes: u64) -> DiskSpace {
    DiskSpace { bytes, inodes: (bytes / BYTES_PER_INODE).max(1024) }
}

/// `timeout` from now, or `deadline` if that is earlier.
pub(super) fn shorter(timeout: Duration, deadline: Deadline) -> Deadline {
    Deadline::after(timeout.min(deadline.remaining()))
}

impl From<io::Error> for RepositoryError {
    fn from(error: io::Error) -> Self {
        SetupFailure::from_io("repository", &error).into()
    }
}
