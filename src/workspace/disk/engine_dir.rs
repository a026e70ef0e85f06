//! The directory of everything that outlives the service.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::skills::sweep::sweep;
use super::store_quota::StoreQuota;
use crate::store::{ServiceLock, StoreDir, StoreError};
use crate::workspace::error::{EngineCode, EngineError};

/// `ENGINE_STORE_DIR`, which one service at a time owns.
#[derive(Debug)]
pub struct EngineDir {
    root: StoreDir,
    quota: StoreQuota,
    _lock: ServiceLock,
}

impl EngineDir {
    /// Opens the directory and takes its lock; creates it if missing. Everything in it may take
    /// `bytes_max` bytes.
    ///
    /// # Errors
    /// The directory cannot be used, or another service owns it.
    pub fn open(path: &Path, bytes_max: u64) -> Result<Self, StoreError> {
        let root = StoreDir::open_root(path)?;
        let lock = ServiceLock::take(&root)?;
        let quota = StoreQuota::new(bytes_max);
        sweep(&root, &quota)?;
        Ok(Self { root, quota, _lock: lock })
    }

    /// Opens the directory `name` in it, and creates it if missing.
    pub(crate) fn child(&self, name: &str) -> Result<StoreDir, StoreError> {
        self.root.own_child(name)
    }

    /// The bytes that everything in it may take.
    pub fn quota(&self) -> &StoreQuota {
        &self.quota
    }
}

/// An [`EngineDir`] that is opened when it is first used: a service that keeps nothing creates
/// nothing, and does not compete for the directory.
pub struct LazyEngineDir {
    path: PathBuf,
    bytes_max: u64,
    opened: Mutex<Option<Arc<EngineDir>>>,
}

impl fmt::Debug for LazyEngineDir {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LazyEngineDir").field("path", &self.path).finish_non_exhaustive()
    }
}

impl LazyEngineDir {
    /// The directory `path`, of at most `bytes_max` bytes.
    pub fn new(path: PathBuf, bytes_max: u64) -> Self {
        Self { path, bytes_max, opened: Mutex::default() }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory. Opens it if that has not succeeded before.
    ///
    /// # Errors
    /// The directory cannot be used, or another service owns it.
    pub fn get(&self) -> Result<Arc<EngineDir>, StoreError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(Arc::clone(opened));
        }
        let directory = Arc::new(EngineDir::open(&self.path, self.bytes_max)?);
        *opened = Some(Arc::clone(&directory));
        Ok(directory)
    }
}

/// The error for clients, without paths; the log has them.
impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        let words = error.without_paths();
        match error {
            StoreError::Owned { .. } => {
                Self::new(EngineCode::EngineClosed, words).with("reason", "store_owned")
            }
            StoreError::System {
                source: nix::errno::Errno::ENOSPC | nix::errno::Errno::EDQUOT,
                ..
            } => {
                log::error!(reason = error.to_string(); "the engine's store is full");
                Self::new(EngineCode::StoreFull, "the disk of the engine's store is full")
            }
            error => {
                log::error!(reason = error.to_string(); "the engine's store failed");
                Self::new(EngineCode::IoFailed, words)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    #[test]
    fn one_service_at_a_time_owns_the_directory() {
        let parent = tempdir().unwrap();
        let path = parent.path().join("engine");
        let lazy = LazyEngineDir::new(path.clone(), 1);
        assert!(!path.exists(), "nothing is made before it is used");
        let first = lazy.get().unwrap();
        assert!(Arc::ptr_eq(&first, &lazy.get().unwrap()));
        let other = LazyEngineDir::new(path, 1);
        let error = other.get().unwrap_err();
        assert!(matches!(error, StoreError::Owned { .. }), "{error}");
        let error = EngineError::from(error);
        assert_eq!(error.code, EngineCode::EngineClosed);
        assert!(!error.message.contains('/'), "{error}");
        drop((first, lazy));
        other.get().unwrap();
    }
}
