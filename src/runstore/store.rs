//! A store, open: for running jobs, or for looking alone.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

use super::directory::Directory;
use super::error::{StoreError, errno_of};
use super::index::Index;
use super::owner::Owner;
use super::recovery::Recovered;

/// The records of jobs in one directory. Handles are clones of one opening.
#[derive(Debug, Clone)]
pub struct RunStore {
    pub(super) inner: Arc<Inner>,
}

/// How long, and how much, is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreSettings {
    /// How long a job's record is kept after its end; for ever where there is none.
    pub retention: Option<Duration>,
    /// How much the records of all jobs that are over may take on the disk, bytes.
    pub bytes_max: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) runs: Directory,
    /// What an opening has that may change anything.
    pub(super) keeper: Option<Keeper>,
}

#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) settings: StoreSettings,
    pub(super) owner: Owner,
    pub(super) quarantine: Directory,
    pub(super) index: Mutex<Index>,
    /// Held by the one thread that settles what others have left; when one last did.
    pub(super) settling: Mutex<Option<Instant>>,
}

impl Keeper {
    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        locked(&self.index)
    }
}

/// A mutex whose value is whole between any two statements, whoever died holding it.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunStore {
    /// Opens the store in `directory`, which is made where it is not there, and brings it in
    /// order: jobs whose owner is dead are finished as interrupted, what is no record any more is
    /// put into quarantine, half-made and half-removed jobs go.
    ///
    /// # Errors
    /// A directory that is none, is somebody else's, or cannot be written.
    pub fn open(
        directory: &Path,
        settings: StoreSettings,
    ) -> Result<(Self, Recovered), StoreError> {
        let unusable = |reason: String| StoreError::Unusable { path: directory.into(), reason };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| unusable(errno_of(&error).to_string()))?;
        let root = open_root(directory)?;
        let stat = root.stat()?;
        if stat.st_uid != geteuid().as_raw() {
            return Err(unusable(format!("it belongs to user {}", stat.st_uid)));
        }
        let mode = Mode::from_bits_truncate(stat.st_mode);
        if mode.contains(Mode::S_IWOTH) && !mode.contains(Mode::S_ISVTX) {
            return Err(unusable("everybody may write to it".to_owned()));
        }
        let part = |name| {
            root.own_child(name).map_err(|error| match error {
                StoreError::System { operation, source, .. } => {
                    unusable(format!("{operation} {name}: {source}"))
                }
                error => error,
            })
        };
        let (runs, quarantine) = (part("runs")?, part("quarantine")?);
        let owner =
            Owner::register(part("owners")?).map_err(|error| unusable(error.to_string()))?;
        let (index, settling) = (Mutex::default(), Mutex::default());
        let keeper = Keeper { settings, owner, quarantine, index, settling };
        let store = Self { inner: Arc::new(Inner { runs, keeper: Some(keeper) }) };
        let recovered = store.recover()?;
        Ok((store, recovered))
    }

    /// Opens the store in `directory` for looking, and for asking for a job's end: nothing is
    /// made, recovered or removed.
    ///
    /// # Errors
    /// A directory that is no store, or cannot be read.
    pub fn open_existing(directory: &Path) -> Result<Self, StoreError> {
        let runs = open_root(directory)?.child("runs").map_err(|errno| StoreError::Unusable {
            path: directory.into(),
            reason: format!("runs: {errno}"),
        })?;
        Ok(Self { inner: Arc::new(Inner { runs, keeper: None }) })
    }

    /// What only an opening has that may change anything.
    pub(super) fn keeper(&self) -> Result<&Keeper, StoreError> {
        self.inner.keeper.as_ref().ok_or_else(|| StoreError::Unusable {
            path: self.inner.runs.path().into(),
            reason: "it was opened for looking alone".to_owned(),
        })
    }
}

/// The store's directory by its whole path, which is part of what artifacts are told as.
fn open_root(directory: &Path) -> Result<Directory, StoreError> {
    let unusable =
        |errno: Errno| StoreError::Unusable { path: directory.into(), reason: errno.to_string() };
    let whole: PathBuf = directory.canonicalize().map_err(|error| unusable(errno_of(&error)))?;
    Directory::open(&whole).map_err(unusable)
}
