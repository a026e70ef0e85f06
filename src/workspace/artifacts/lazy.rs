//! The artifacts of a service, opened when they are first used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::store::ArtifactStore;
use crate::store::StoreError;
use crate::workspace::disk::LazyEngineDir;
use crate::workspace::error::{EngineCode, EngineError};

/// The artifacts of a service, opened when they are first used.
#[derive(Debug)]
pub struct LazyArtifacts {
    directory: Arc<LazyEngineDir>,
    version_bytes_max: u64,
    opened: Mutex<Option<ArtifactStore>>,
    draining: AtomicBool,
}

impl LazyArtifacts {
    /// The artifacts in `directory`. A version may have `version_bytes_max` bytes.
    pub fn new(directory: Arc<LazyEngineDir>, version_bytes_max: u64) -> Self {
        let (opened, draining) = (Mutex::default(), AtomicBool::new(false));
        Self { directory, version_bytes_max, opened, draining }
    }

    /// Opens the store if that has not succeeded before.
    ///
    /// # Errors
    /// The directory cannot be used, or another service owns it.
    pub fn open(&self) -> Result<ArtifactStore, StoreError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = &*opened {
            return Ok(store.clone());
        }
        let store = ArtifactStore::open(self.directory.get()?, self.version_bytes_max)?;
        *opened = Some(store.clone());
        Ok(store)
    }

    /// The store, for what a client asks.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn store(&self) -> Result<ArtifactStore, EngineError> {
        Ok(self.open()?)
    }

    /// The store, for a save.
    ///
    /// # Errors
    /// It cannot be opened, or the service ends.
    pub fn store_for_save(&self) -> Result<ArtifactStore, EngineError> {
        if self.draining.load(Ordering::Acquire) {
            return Err(EngineError::new(EngineCode::EngineClosed, "the service is draining"));
        }
        self.store()
    }

    /// Refuses new saves from now on.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }
}
