//! What prepares sources here, and local repositories.

use std::env;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use cofferdam::case::source::{
    CloneParts, CommitPlan, PreparedSource, SourceError, SourceParts, SourcePlan,
};
use cofferdam::cases::{
    CellExecutorKind, CellSettings, Executor, LocalCell, LocalSettings, SandboxedCell,
};
use cofferdam::egress::{EgressLog, EgressTerms};
use cofferdam::evaluation::bounds::PhaseBounds;
use cofferdam::evaluation::cache::CacheSpace;
use cofferdam::evaluation::repository::{Repositories, RepositoryRoots, RepositorySettings};
use cofferdam::evaluation::trees::{EvaluationRoot, EvaluationTrees};
use cofferdam_core::NetworkObject;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_test_support::{Host, host};
use cofferdam_tree::{Owner, StopCheck};

const MIB: u64 = 1 << 20;

fn binary() -> PathBuf {
    env::var_os("COFFERDAM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_cofferdam").into()).into()
}

/// What prepares sources, and a place for files.
pub struct SourceScene {
    place: TempDir,
    repositories: Repositories,
    root: EvaluationRoot,
    local: RepositoryRoots,
    egress: Arc<EgressLog>,
    cancel: CancelToken,
    host: Host,
}

impl SourceScene {
    /// None where sandboxes are impossible.
    #[track_caller]
    pub fn new() -> Option<Self> {
        let host = host()?;
        let place = tempfile::tempdir().unwrap();
        for name in ["scratch", "cache", "copies"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        let trees = EvaluationTrees::open(host.backend(), None).unwrap();
        let terms = EgressTerms { bytes_max: 64 * MIB, ..EgressTerms::default() };
        let bounds =
            PhaseBounds { memory_bytes_max: 512 * MIB, processes_max: 64, cpus_milli_max: None };
        let settings = RepositorySettings {
            egress: terms.clone(),
            cache: CacheSpace::lasting(place.path().join("cache"), 256 * MIB).into(),
            clone_timeout: Duration::from_secs(60),
            repository_bytes_max: 64 * MIB,
            base_bytes_max: 64 * MIB,
            install_timeout: Duration::from_secs(60),
            install_network: NetworkObject::default(),
            clone_network: NetworkObject::default(),
            install_env: [].into(),
            bounds,
        };
        Some(Self {
            repositories: Repositories::new(settings),
            root: EvaluationRoot { name: "host".to_owned(), trees },
            local: RepositoryRoots::open(&[PathBuf::from("/")]).unwrap(),
            egress: terms.log(),
            cancel: CancelToken::new().unwrap(),
            place,
            host,
        })
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn parts_until<'a>(&'a self, scratch: &'a Path, deadline: Deadline) -> SourceParts<'a> {
        let clones = CloneParts {
            repositories: &self.repositories,
            root: &self.root,
            owner: "a",
            local: &self.local,
            egress: &self.egress,
        };
        SourceParts { scratch, clones: Some(clones), cancel: &self.cancel, deadline }
    }

    /// A Cell with a copy of the directory `source`, started.
    pub fn cell(&self, kind: CellExecutorKind, source: PathBuf) -> Box<dyn Executor> {
        let settings = CellSettings { source: Some(source), ..CellSettings::default() };
        let cancel = self.cancel.clone();
        let cell: Box<dyn Executor> = match kind {
            CellExecutorKind::Local => {
                let (base, helper) = (self.at("scratch"), binary());
                Box::new(LocalCell::new(LocalSettings { cell: settings, base, helper }, cancel))
            }
            _ => Box::new(SandboxedCell::new(self.host.backend(), settings, cancel)),
        };
        cell.start().unwrap();
        cell
    }

    pub fn prepare(&self, plan: &SourcePlan) -> Result<PreparedSource, SourceError> {
        let scratch = self.at("scratch");
        let deadline = Deadline::after(Duration::from_secs(120));
        PreparedSource::prepare(plan, &self.parts_until(&scratch, deadline))
    }

    /// The plan for `commit` of the repository at `path`.
    pub fn commit(path: &Path, commit: &str, subdir: Option<&str>, is_copy: bool) -> SourcePlan {
        SourcePlan::Clone(CommitPlan {
            repository: path.display().to_string(),
            commit: commit.to_owned(),
            subdir: subdir.map(PathBuf::from),
            is_copy,
        })
    }

    /// A copy of a source, as a Cell has it.
    pub fn copy(&self, source: &PreparedSource, name: &str) -> PathBuf {
        let target = self.at("copies").join(name);
        fs::create_dir(&target).unwrap();
        let directory = fs::File::open(&target).unwrap();
        let owner = Owner { uid: nix::unistd::geteuid().as_raw(), gid: 0 };
        source.copy_to(directory.as_fd(), owner, StopCheck::never()).unwrap();
        target
    }
}

/// Runs git in `directory`, and returns what it printed.
#[track_caller]
pub fn git(directory: &Path, args: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// Commits a file of `content`; returns the hash.
pub fn commit(repository: &Path, path: &str, content: &str) -> String {
    let file = repository.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
    git(repository, &["add", "--all"]);
    git(repository, &["commit", "-qm", content]);
    git(repository, &["rev-parse", "HEAD"])
}

/// A new repository at `path` with one commit.
pub fn repository(path: &Path) -> String {
    fs::create_dir_all(path).unwrap();
    git(path, &["init", "-q", "--initial-branch=main"]);
    commit(path, "a.txt", "first")
}

/// The names of all files and directories below `directory` but those of `.git`, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let (mut pending, mut found) = (vec![directory.to_owned()], Vec::new());
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.ends_with(".git") {
                continue;
            }
            found.push(entry.strip_prefix(directory).unwrap().display().to_string());
            if entry.symlink_metadata().unwrap().is_dir() {
                pending.push(entry);
            }
        }
    }
    found.sort();
    found
}
