//! Stops the server from any thread.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::http::services::Services;

/// Stops a server. Can be cloned, and used from a signal thread or a request.
#[derive(Clone)]
pub struct ShutdownHandle(Arc<ShutdownState>);

struct ShutdownState {
    services: Services,
    draining: Mutex<bool>,
    began: Condvar,
}

impl fmt::Debug for ShutdownHandle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ShutdownHandle").field("draining", &*self.lock()).finish_non_exhaustive()
    }
}

impl ShutdownHandle {
    pub(crate) fn new(services: Services) -> Self {
        Self(Arc::new(ShutdownState {
            services,
            draining: Mutex::new(false),
            began: Condvar::new(),
        }))
    }

    /// Begins the drain at the first call; kills live runs and jobs at every later one.
    pub fn request(&self) {
        if !self.drain() {
            self.0.services.checks.cancel_all();
            self.0.services.cancel_agents();
        }
    }

    /// Begins the drain, and returns whether this call began it. Once it returns, no run and no job
    /// is admitted.
    pub fn drain(&self) -> bool {
        self.0.services.start_draining();
        let already = std::mem::replace(&mut *self.lock(), true);
        self.0.began.notify_all();
        !already
    }

    /// Waits for the drain to begin.
    pub(crate) fn wait(&self) {
        let draining = self.0.began.wait_while(self.lock(), |draining| !*draining);
        drop(draining.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        // A bool is always consistent.
        self.0.draining.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
