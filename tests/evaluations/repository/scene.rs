//! A cache, a server of repositories, and requests for bases.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::egress::{AllowList, EgressLog, EgressRecord, EgressTerms};
use cofferdam::evaluation::bounds::PhaseBounds;
use cofferdam::evaluation::cache::CacheSpace;
use cofferdam::evaluation::repository::{
    Base, BaseRequest, BaseSource, FoundCommit, MadeBase, Repositories, RepositoryError,
    RepositoryRoots, RepositorySettings, RepositorySource, Revision, phase_environment,
};
use cofferdam::evaluation::task::TaskBounds;
use cofferdam::evaluation::trees::{EvaluationRoot, EvaluationTrees};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{ExcessOutput, Limits, NetworkObject, Outcome, RunSpec, Watch, WorkspacePath};
use cofferdam_sandbox::engine::DiskSpace;
use cofferdam_test_support::{Host, host};
use tempfile::TempDir;

use super::git_server::GitServer;

const MIB: u64 = 1 << 20;

/// All that a test needs.
#[derive(Debug)]
pub struct CloneScene {
    pub server: GitServer,
    pub repositories: Repositories,
    pub cache: TempDir,
    root: EvaluationRoot,
    terms: EgressTerms,
    _host: Host,
}

/// What a test asks for.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub install: Vec<String>,
    pub goes_on: bool,
    pub fresh: bool,
    pub owner: &'static str,
    pub cancel: CancelToken,
}

impl Default for Wanted {
    fn default() -> Self {
        let cancel = CancelToken::new().unwrap();
        Self { install: Vec::new(), goes_on: false, fresh: false, owner: "a", cancel }
    }
}

impl Wanted {
    /// With these commands of install.
    pub fn installing(commands: &[&str]) -> Self {
        let install = commands.iter().map(ToString::to_string).collect();
        Self { install, ..Self::default() }
    }
}

impl CloneScene {
    /// One with the loopback allowed.
    #[track_caller]
    pub fn new() -> Option<Self> {
        Self::with(|_| ())
    }

    /// As [`CloneScene::new`], with other settings.
    #[track_caller]
    pub fn with(change: impl FnOnce(&mut RepositorySettings)) -> Option<Self> {
        let host = host()?;
        let (server, cache) = (GitServer::start(), TempDir::new().unwrap());
        let private_hosts = AllowList::parse(&["127.0.0.1".to_owned()]).unwrap();
        let terms = EgressTerms { private_hosts, bytes_max: 64 * MIB, ..EgressTerms::default() };
        let trees = EvaluationTrees::open(host.backend(), None).unwrap();
        let root = EvaluationRoot { name: "host".to_owned(), trees };
        let mut settings = settings(&terms, cache.path());
        change(&mut settings);
        let repositories = Repositories::new(settings);
        Some(Self { server, repositories, cache, root, terms, _host: host })
    }

    /// Opens the cache again, as a new process does.
    pub fn reopen(&mut self) {
        self.reopen_with(|_, _| ());
    }

    /// As [`CloneScene::reopen`], with other settings; the path is that of [`CloneScene::cache`].
    pub fn reopen_with(&mut self, change: impl FnOnce(&mut RepositorySettings, &Path)) {
        let mut settings = settings(&self.terms, self.cache.path());
        change(&mut settings, self.cache.path());
        self.repositories = Repositories::new(settings);
    }

    /// The commit `revision` of the repository at `url`.
    pub fn commit_of(&self, url: &str, revision: &str) -> BaseSource {
        let roots = RepositoryRoots::open(&[self.server.path("")]).unwrap();
        BaseSource::Commit {
            repository: RepositorySource::parse(url, &roots).unwrap(),
            revision: Revision::parse(revision).unwrap(),
        }
    }

    /// The files of `directory` as the only commit.
    pub fn files_of(&self, directory: &Path) -> BaseSource {
        let digest = directory.display().to_string();
        BaseSource::Files { directory: File::open(directory).unwrap().into(), digest }
    }

    /// Both phases.
    pub fn base(
        &self,
        source: &BaseSource,
        wanted: &Wanted,
    ) -> Result<(FoundCommit, MadeBase), RepositoryError> {
        self.base_and_egress(source, wanted).0
    }

    /// Both phases, with what their sandboxes reached.
    pub fn base_and_egress(
        &self,
        source: &BaseSource,
        wanted: &Wanted,
    ) -> (Result<(FoundCommit, MadeBase), RepositoryError>, Vec<EgressRecord>) {
        let egress: Arc<EgressLog> = self.terms.log();
        let (env, place) = (BTreeMap::from([("A".into(), "1".into())]), WorkspacePath::default());
        let request = BaseRequest {
            owner: wanted.owner,
            root: &self.root,
            source,
            install: &wanted.install,
            goes_on: wanted.goes_on,
            env: &env,
            asked: TaskBounds::default(),
            place: &place,
            fresh: wanted.fresh,
            cancel: &wanted.cancel,
            deadline: Deadline::after(Duration::from_secs(120)),
            egress: &egress,
            output: None,
        };
        let found = self.repositories.find_commit(&request);
        let made = found.and_then(|found| {
            let base = self.repositories.base(&request, &found)?;
            Ok((found, base))
        });
        (made, egress.snapshot())
    }

    /// The base of the commit `revision` of the server's repository `name`. It must be made.
    #[track_caller]
    pub fn base_of(&self, name: &str, revision: &str) -> Arc<Base> {
        let source = self.commit_of(&self.server.url(name), revision);
        self.base(&source, &Wanted::default()).unwrap().1.base
    }
}

/// Small bounds, with the cache below `directory`.
fn settings(terms: &EgressTerms, directory: &Path) -> RepositorySettings {
    RepositorySettings {
        egress: terms.clone(),
        cache: CacheSpace::lasting(directory.join("cache"), 256 * MIB).into(),
        clone_timeout: Duration::from_secs(60),
        repository_bytes_max: 64 * MIB,
        base_bytes_max: 64 * MIB,
        install_timeout: Duration::from_secs(60),
        install_network: NetworkObject::default(),
        clone_network: NetworkObject::default(),
        install_env: BTreeMap::new(),
        bounds: PhaseBounds {
            memory_bytes_max: 512 * MIB,
            processes_max: 64,
            cpus_milli_max: None,
        },
    }
}

/// What `script` prints in a sandbox over a copy of `base`. It must succeed.
#[track_caller]
pub fn seen(base: &Base, script: &str) -> String {
    let room = DiskSpace { bytes: 32 * MIB, inodes: 4096 };
    let tree = base.files.fork(room).unwrap();
    let place = WorkspacePath::default();
    let argv = ["sh", "-ec", script].map(|text| std::ffi::CString::new(text).unwrap()).to_vec();
    let variables = phase_environment(&place);
    let env = variables.iter().map(|(name, value)| format!("{name}={value}"));
    let spec = RunSpec {
        argv,
        env: env.map(|text| std::ffi::CString::new(text).unwrap()).collect(),
        workdir: place.as_path().to_owned(),
        limits: Limits { file_bytes_max: u64::MAX, ..Limits::default() },
        excess_output: ExcessOutput::Dropped { stdout_bytes_max: MIB, stderr_bytes_max: MIB },
        ..RunSpec::default()
    };
    let watch = Watch::of(CancelToken::new().unwrap());
    let report = tree.run(spec, &place, &watch, None).unwrap();
    assert_eq!(
        report.outcome,
        Outcome::Exited { code: 0 },
        "{script}\n{}\n{}",
        report.stdout.text(),
        report.stderr.text()
    );
    report.stdout.text().trim_end().to_owned()
}
