//! An open store: for a service, for running single jobs, or for reading only.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::error::{StoreError, errno_of};
use super::index::{Index, RunsState};
use crate::store::files::directory::StoreDir;
use crate::store::files::owner::{Claims, StoreOwner};
use crate::store::files::service_lock::ServiceLock;

/// The records of jobs in one directory. Clones share one opening.
#[derive(Debug, Clone)]
pub struct RunStore {
    pub(super) inner: Arc<OpenStore>,
}

/// How long records are kept, and how much of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreSettings {
    /// How long the record of an ended job is kept; for ever if unset.
    pub retention: Option<Duration>,
    /// The most bytes that the records of ended jobs take on the disk.
    pub bytes_max: Option<u64>,
}

#[derive(Debug)]
pub(super) struct OpenStore {
    /// The canonical path.
    path: PathBuf,
    opened: RwLock<Arc<StoreDirs>>,
    /// Set unless the store is open for reading only.
    pub(super) writer: Option<StoreWriter>,
}

/// The directories of a store. They are opened again if the store was removed.
#[derive(Debug)]
pub(super) struct StoreDirs {
    pub(super) runs: StoreDir,
    writer: Option<Arc<WriterDirs>>,
}

/// What a writer has open in addition.
#[derive(Debug)]
pub(super) struct WriterDirs {
    pub(super) owner: StoreOwner,
    pub(super) quarantine: StoreDir,
    lock: Option<Arc<ServiceLock>>,
}

/// The state of an opening that may write.
#[derive(Debug)]
pub(super) struct StoreWriter {
    pub(super) settings: StoreSettings,
    is_service: bool,
    pub(super) index: Mutex<Index>,
    /// Held while a thread finishes jobs of dead owners; when that was last done.
    pub(super) settling: Mutex<Option<Instant>>,
    /// Held while a thread compares the index with the disk; what it last found there.
    pub(super) seen: Mutex<Option<RunsState>>,
}

impl StoreWriter {
    pub(super) fn new(settings: StoreSettings, is_service: bool) -> Self {
        let (index, settling, seen) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { settings, is_service, index, settling, seen }
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        locked(&self.index)
    }
}

/// Locks a mutex whose value is consistent between any two statements, even after a panic.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunStore {
    /// Opens the store in `directory` for running jobs next to a service or other processes, and
    /// creates it if missing. Reads no record until one is requested.
    ///
    /// # Errors
    /// The path is not a directory, belongs to another user, or cannot be written.
    pub fn open_shared(directory: &Path, settings: StoreSettings) -> Result<Self, StoreError> {
        let store = Self::open_writer(directory, StoreWriter::new(settings, false))?;
        Claims::new(store.writer_dirs()?.owner.owners()).sweep()?;
        Ok(store)
    }

    pub(super) fn open_writer(directory: &Path, writer: StoreWriter) -> Result<Self, StoreError> {
        let opened = StoreDirs::make(directory, writer.is_service, None)?;
        let path = directory.canonicalize().map_err(|error| StoreError::Unusable {
            path: directory.into(),
            reason: errno_of(&error).to_string(),
        })?;
        let opened = RwLock::new(Arc::new(opened));
        Ok(Self { inner: Arc::new(OpenStore { path, opened, writer: Some(writer) }) })
    }

    /// Opens the store in `directory` for reading and for canceling jobs. Creates and removes
    /// nothing. A job whose owner is dead is finished as interrupted when it is read.
    ///
    /// # Errors
    /// The directory is not a store, or cannot be read.
    pub fn open_existing(directory: &Path) -> Result<Self, StoreError> {
        let root = open_root(directory)?;
        let runs = root.child("runs").map_err(|errno| StoreError::Unusable {
            path: directory.into(),
            reason: format!("runs: {errno}"),
        })?;
        let opened = RwLock::new(Arc::new(StoreDirs { runs, writer: None }));
        let path = root.path().to_owned();
        Ok(Self { inner: Arc::new(OpenStore { path, opened, writer: None }) })
    }

    /// The canonical path of the store.
    pub(super) fn path(&self) -> &Path {
        &self.inner.path
    }

    pub(super) fn opened(&self) -> Arc<StoreDirs> {
        Arc::clone(&self.inner.opened.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The writer's state; an error if the store is open for reading only.
    pub(super) fn writer(&self) -> Result<&StoreWriter, StoreError> {
        self.inner.writer.as_ref().ok_or_else(|| self.read_only_error())
    }

    /// The writer's directories; an error if the store is open for reading only.
    pub(super) fn writer_dirs(&self) -> Result<Arc<WriterDirs>, StoreError> {
        self.opened().writer.clone().ok_or_else(|| self.read_only_error())
    }

    fn read_only_error(&self) -> StoreError {
        let reason = "it is open for reading only".to_owned();
        StoreError::Unusable { path: self.inner.path.clone(), reason }
    }

    /// Opens the store at its path again if it was removed or replaced, and creates it if missing.
    pub(super) fn reopen_if_moved(&self) -> Result<(), StoreError> {
        let writer = self.writer()?;
        if self.opened().runs.is_in_place() {
            return Ok(());
        }
        let mut opened = self.inner.opened.write().unwrap_or_else(PoisonError::into_inner);
        if opened.runs.is_in_place() {
            return Ok(());
        }
        let path = &self.inner.path;
        let lock = opened.writer.as_ref().and_then(|dirs| dirs.lock.clone());
        let lock = lock.filter(|lock| lock.is_of(path));
        *opened = Arc::new(StoreDirs::make(path, writer.is_service, lock)?);
        drop(opened);
        log::warn!(store = path.display().to_string(); "the store was removed; made again");
        Ok(())
    }
}

impl StoreDirs {
    /// Opens the store in `directory`, and creates what is missing of it.
    fn make(
        directory: &Path,
        is_service: bool,
        lock: Option<Arc<ServiceLock>>,
    ) -> Result<Self, StoreError> {
        let unusable = |reason: String| StoreError::Unusable { path: directory.into(), reason };
        let root = StoreDir::open_root(directory)?;
        let part = |name| {
            root.own_child(name).map_err(|error| match error {
                StoreError::System { operation, source, .. } => {
                    unusable(format!("{operation} {name}: {source}"))
                }
                error => error,
            })
        };
        let (runs, quarantine) = (part("runs")?, part("quarantine")?);
        let lock = match lock {
            None if is_service => Some(Arc::new(ServiceLock::take(&root)?)),
            lock => lock,
        };
        let owner =
            StoreOwner::register(part("owners")?).map_err(|error| unusable(error.to_string()))?;
        Ok(Self { runs, writer: Some(Arc::new(WriterDirs { owner, quarantine, lock })) })
    }
}

/// Opens the directory by its canonical path, which is part of the URIs of artifacts.
fn open_root(directory: &Path) -> Result<StoreDir, StoreError> {
    let unusable =
        |errno: Errno| StoreError::Unusable { path: directory.into(), reason: errno.to_string() };
    let whole: PathBuf = directory.canonicalize().map_err(|error| unusable(errno_of(&error)))?;
    StoreDir::open(&whole).map_err(unusable)
}
