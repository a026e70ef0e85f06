//! The place for the one sandbox of a workspace.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::workspace::error::EngineError;
use crate::workspace::trees::LastingSandbox;

/// Holds the sandbox of a workspace from its first program on. One that has died stays until the next
/// program.
#[derive(Debug, Default)]
pub struct SharedSlot(Mutex<Option<Arc<dyn LastingSandbox>>>);

impl SharedSlot {
    /// The sandbox, if it lives.
    pub fn current(&self) -> Option<Arc<dyn LastingSandbox>> {
        self.lock().clone().filter(|sandbox| sandbox.is_alive())
    }

    /// The sandbox, or the one that `start` starts. Others wait meanwhile.
    ///
    /// # Errors
    /// That of `start`.
    pub fn current_or(
        &self,
        start: impl FnOnce() -> Result<Arc<dyn LastingSandbox>, EngineError>,
    ) -> Result<Arc<dyn LastingSandbox>, EngineError> {
        let mut slot = self.lock();
        if let Some(sandbox) = slot.as_ref().filter(|sandbox| sandbox.is_alive()) {
            return Ok(Arc::clone(sandbox));
        }
        let started = start()?;
        *slot = Some(Arc::clone(&started));
        Ok(started)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn LastingSandbox>>> {
        // The one assignment cannot be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
