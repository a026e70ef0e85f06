//! The store of artifacts: opened, saved to and deleted from.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;

use super::key::{ArtifactKey, ArtifactScope};
use super::key_dir::{KeyEntries, charge_of, key_file_of, write_key};
use crate::store::{StoreDir, StoreError};
use crate::workspace::disk::EngineDir;
use crate::workspace::disk::{DIRECTORY_CHARGE, StoreQuota, StoreReservation, file_charge};
use crate::workspace::error::{EngineCode, EngineError};

/// Locks for artifacts; those of one lock are saved and deleted one after the other.
const LOCKS: usize = 64;
/// The most artifacts whose next version one lock remembers.
const REMEMBERED_MAX: usize = 64;
/// The length of the name of a directory, a digest.
const DIRECTORY_NAME_BYTES: usize = 64;

/// The artifacts of a service. Clones share them.
#[derive(Clone)]
pub struct ArtifactStore {
    pub(super) inner: Arc<StoreInner>,
}

impl fmt::Debug for ArtifactStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ArtifactStore").field("root", &self.inner.root).finish_non_exhaustive()
    }
}

pub(super) struct StoreInner {
    /// Holds the lock of the store.
    _directory: Arc<EngineDir>,
    /// `artifacts/<digest of the scope>/<digest of the name>/`.
    pub(super) root: StoreDir,
    /// Versions that are being received.
    pub(super) incoming: StoreDir,
    pub(super) quota: StoreQuota,
    pub(super) version_bytes_max: u64,
    /// Held while the directory of a scope is made.
    making_scope: Mutex<()>,
    /// By artifact: the next version of some that were saved to lately.
    locks: [Mutex<HashMap<String, u64>>; LOCKS],
    random: RandomState,
}

impl ArtifactStore {
    /// Opens the artifacts in `directory`. A version may have `version_bytes_max` bytes. Removes what
    /// a killed service has left unfinished, and counts what the artifacts take on the disk.
    ///
    /// # Errors
    /// The files cannot be read or changed.
    pub fn open(directory: Arc<EngineDir>, version_bytes_max: u64) -> Result<Self, StoreError> {
        let root = directory.child("artifacts")?;
        let incoming = directory.child("artifacts-incoming")?;
        let quota = directory.quota().clone();
        for name in incoming.names()? {
            incoming.unlink(&name.to_string_lossy())?;
        }
        root.sync()?;
        quota.add(sweep(&root)?);
        let inner = StoreInner {
            _directory: directory,
            root,
            incoming,
            quota,
            version_bytes_max,
            making_scope: Mutex::default(),
            locks: std::array::from_fn(|_| Mutex::default()),
            random: RandomState::new(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Deletes every version of an artifact. Its next version is the one after the last.
    ///
    /// # Errors
    /// The files cannot be changed.
    pub fn delete(&self, key: &ArtifactKey) -> Result<(), EngineError> {
        let mut next_versions = self.inner.lock(key);
        let Some(directory) = self.inner.key_dir(key)? else { return Ok(()) };
        let entries = KeyEntries::read(&directory)?;
        if entries.versions.is_empty() {
            return Ok(());
        }
        next_versions.remove(&key.path());
        let before = charge_of(&directory)?;
        entries.delete(&directory)?;
        // From here it is deleted, whatever else fails.
        let swept = KeyEntries::read(&directory).and_then(|left| left.sweep(&directory));
        if let Err(error) = swept.and_then(|()| directory.sync()) {
            log::warn!(reason = error.to_string(); "files of a deleted artifact stay until the next start");
        }
        let after = charge_of(&directory).unwrap_or(before);
        self.inner.quota.free(before.saturating_sub(after));
        Ok(())
    }
}

impl StoreInner {
    /// Locks the artifact `key`, and others.
    fn lock(&self, key: &ArtifactKey) -> MutexGuard<'_, HashMap<String, u64>> {
        let hash = usize::try_from(self.random.hash_one(key) % LOCKS as u64).unwrap_or_default();
        // The locked map is only a memory of what is on the disk.
        let [first, ..] = &self.locks;
        self.locks.get(hash).unwrap_or(first).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory of a scope, if it exists.
    pub(super) fn scope_dir(&self, scope: &ArtifactScope) -> Result<Option<StoreDir>, StoreError> {
        existing(&self.root, &scope.directory())
    }

    /// The directory of an artifact, if it exists.
    pub(super) fn key_dir(&self, key: &ArtifactKey) -> Result<Option<StoreDir>, StoreError> {
        match self.scope_dir(key.scope())? {
            Some(scope) => existing(&scope, &key.directory()),
            None => Ok(None),
        }
    }

    /// Makes the complete file `incoming/<name>`, for which `room` is reserved, the next version of
    /// `key`. When this returns, the version is on the disk.
    pub(super) fn publish(
        &self,
        key: &ArtifactKey,
        name: &str,
        room: StoreReservation,
    ) -> Result<u64, EngineError> {
        let mut next_versions = self.lock(key);
        let directory = self.make_key_dir(key)?;
        let path = key.path();
        let version = match next_versions.get(&path) {
            Some(version) => *version,
            None => self.prepare(key, &directory)?,
        };
        if next_versions.len() >= REMEMBERED_MAX {
            next_versions.clear();
        }
        let moved = self.incoming.move_to(name, &directory, version.to_string());
        if let Err(errno) = moved {
            next_versions.remove(&path);
            return Err(directory.error("rename", version.to_string(), errno).into());
        }
        room.keep();
        next_versions.insert(path, version.saturating_add(1));
        drop(next_versions);
        directory.sync()?;
        Ok(version)
    }

    /// Makes sure that the directory says whose it is. Returns the next version.
    fn prepare(&self, key: &ArtifactKey, directory: &StoreDir) -> Result<u64, EngineError> {
        let entries = KeyEntries::read(directory)?;
        if !entries.has_key_file() {
            let contents = key_file_of(key);
            let mut reservation = self.quota.reservation();
            reservation.raise_to(file_charge(contents.len() as u64))?;
            write_key(directory, &contents)?;
            reservation.keep();
        }
        Ok(entries.next_version())
    }

    /// The directory of an artifact, made if missing. The artifact is locked.
    fn make_key_dir(&self, key: &ArtifactKey) -> Result<StoreDir, EngineError> {
        let scope = {
            // No other thread uses the directory before its name is on the disk.
            let _guard = self.making_scope.lock().unwrap_or_else(PoisonError::into_inner);
            self.make(&self.root, &key.scope().directory())?
        };
        self.make(&scope, &key.directory())
    }

    fn make(&self, parent: &StoreDir, name: &str) -> Result<StoreDir, EngineError> {
        if let Some(directory) = existing(parent, name)? {
            return Ok(directory);
        }
        let mut reservation = self.quota.reservation();
        reservation.raise_to(DIRECTORY_CHARGE)?;
        let directory = parent.own_child(name)?;
        reservation.keep();
        parent.sync()?;
        Ok(directory)
    }

    /// The error that an artifact has no version.
    pub(super) fn not_found() -> EngineError {
        EngineError::new(EngineCode::ArtifactNotFound, "no such artifact")
    }
}

fn existing(parent: &StoreDir, name: &str) -> Result<Option<StoreDir>, StoreError> {
    match parent.child(name) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(parent.error("open", name, errno)),
    }
}

/// Removes what is unfinished below `root`. Returns what the rest takes on the disk.
fn sweep(root: &StoreDir) -> Result<u64, StoreError> {
    let mut bytes = 0_u64;
    for_each_child(root, |scope_name, scope| {
        // Names that a killed service has made must be on the disk before anyone relies on them.
        scope.sync()?;
        let mut of_scope = 0_u64;
        for_each_child(scope, |name, directory| {
            let entries = KeyEntries::read(directory)?;
            entries.sweep(directory)?;
            if !entries.is_unused() || scope.remove_empty(name).is_err() {
                let taken = charge_of(directory)?.saturating_add(DIRECTORY_CHARGE);
                of_scope = of_scope.saturating_add(taken);
            }
            Ok(())
        })?;
        if of_scope > 0 || root.remove_empty(scope_name).is_err() {
            bytes = bytes.saturating_add(of_scope).saturating_add(DIRECTORY_CHARGE);
        }
        Ok(())
    })?;
    Ok(bytes)
}

/// Calls `visit` with each directory in `parent` that has the name of a digest.
fn for_each_child(
    parent: &StoreDir,
    mut visit: impl FnMut(&OsStr, &StoreDir) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    parent.for_each_name(|name| {
        if name.len() != DIRECTORY_NAME_BYTES {
            return Ok(());
        }
        let child = parent.child(name).map_err(|errno| parent.error("open", name, errno))?;
        visit(name, &child)
    })
}
