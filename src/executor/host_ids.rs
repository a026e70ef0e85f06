//! The host ids that sandboxes run as, each used by one sandbox at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_core::SetupFailure;
use cofferdam_sandbox::engine::{HostId, SandboxHost};

/// Free host ids. They are reused, because the namespaces that map owners to an id are created once
/// per id.
#[derive(Debug, Default)]
pub struct HostIds {
    free: Mutex<Vec<Arc<HostId>>>,
}

/// A host id in use. Dropping it frees the id, which must not happen before the sandbox is dead: the
/// sandbox therefore retains it.
#[derive(Debug)]
pub struct AcquiredId {
    id: Arc<HostId>,
    owner: Arc<HostIds>,
}

impl HostIds {
    /// Creates `count` more ids, so that no later run fails to get one.
    pub fn reserve(&self, sandbox: &SandboxHost, count: usize) -> Result<(), SetupFailure> {
        for _ in 0..count {
            let id = sandbox.host_id()?;
            self.lock().push(Arc::new(id));
        }
        Ok(())
    }

    /// A free id, the most recently freed first.
    pub fn acquire(self: &Arc<Self>, sandbox: &SandboxHost) -> Result<AcquiredId, SetupFailure> {
        let free = self.lock().pop();
        let id = free.map_or_else(|| sandbox.host_id().map(Arc::new), Ok)?;
        Ok(AcquiredId { id, owner: Arc::clone(self) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<HostId>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AcquiredId {
    /// The id itself.
    pub fn id(&self) -> &HostId {
        &self.id
    }
}

impl Drop for AcquiredId {
    fn drop(&mut self) {
        self.owner.lock().push(Arc::clone(&self.id));
    }
}
