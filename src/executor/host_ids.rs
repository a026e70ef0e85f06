//! The host ids boxes run as, each lent to one box at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_core::SetupFailure;
use cofferdam_sandbox::{HostId, Sandbox};

/// Host ids that no box has at present. They are kept: what is made once for
/// an id (the namespaces that map owners to it) serves every later box.
#[derive(Debug, Default)]
pub struct HostIds {
    free: Mutex<Vec<Arc<HostId>>>,
}

/// A host id that is one box's; dropping this gives it back, which the box's death has to come
/// before: the box retains it.
#[derive(Debug)]
pub struct AcquiredId {
    id: Arc<HostId>,
    owner: Arc<HostIds>,
}

impl HostIds {
    /// Holds so many more ahead, so that no run fails for want of one.
    pub fn reserve(&self, sandbox: &Sandbox, count: usize) -> Result<(), SetupFailure> {
        for _ in 0..count {
            let id = sandbox.host_id()?;
            self.lock().push(Arc::new(id));
        }
        Ok(())
    }

    /// One that no other box has: the one given back last, where there is one.
    pub fn acquire(self: &Arc<Self>, sandbox: &Sandbox) -> Result<AcquiredId, SetupFailure> {
        let free = self.lock().pop();
        let id = free.map_or_else(|| sandbox.host_id().map(Arc::new), Ok)?;
        Ok(AcquiredId { id, owner: Arc::clone(self) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<HostId>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AcquiredId {
    /// The id.
    pub fn id(&self) -> &HostId {
        &self.id
    }
}

impl Drop for AcquiredId {
    fn drop(&mut self) {
        self.owner.lock().push(Arc::clone(&self.id));
    }
}
