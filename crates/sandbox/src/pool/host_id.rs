//! The host uid of a tenant, which is 10001 inside its sandbox.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::host::state::StateDirectory;
use crate::launch::unprivileged::ONLY_ID;
use crate::plan::input::INSIDE_ID;
use crate::sys;
use cofferdam_core::weakened::{self, Wall};

/// The first host uid and gid of sandboxes: below 65536, so that it exists in the usual map of a
/// container, and between the ids of people (from 1000) and those that systemd allocates (from
/// 61184).
pub(crate) const HOST_ID_FIRST: u32 = 56_000;
/// How many sandboxes can be alive at once on this host: the number of host ids.
pub const SANDBOXES_MAX: u32 = 4_096;
/// The distance between the first ids that two processes with successive pids try.
const SPREAD: u32 = 61;

/// A host uid, and the gid of the same number, that no other live sandbox has: the kernel counts
/// processes and keyrings and allows signals by host uid. A file lock holds it, so that it is free
/// again however its owner ends. A clone holds it too.
#[derive(Debug, Clone)]
pub struct HostId {
    id: u32,
    lock: Option<Arc<Flock<File>>>,
}

impl HostId {
    /// Acquires an id that no sandbox holds and no process on this host has: a process that was killed
    /// together with its server may not be dead yet. The first id tried depends on the pid, so that
    /// many processes that start at once do not all try the same ids.
    pub fn acquire(state: &StateDirectory) -> io::Result<Self> {
        static ACQUIRED: AtomicU32 = AtomicU32::new(0);
        let first = std::process::id()
            .wrapping_mul(SPREAD)
            .wrapping_add(ACQUIRED.fetch_add(1, Ordering::Relaxed));
        for step in 0..SANDBOXES_MAX {
            let id = HOST_ID_FIRST + first.wrapping_add(step) % SANDBOXES_MAX;
            let file = state.create_file(&format!("uids/{id}"))?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) if !sys::has_processes(id)? => {
                    return Ok(Self { id, lock: Some(Arc::new(lock)) });
                }
                Ok(_) => {}
                Err((_, Errno::EWOULDBLOCK)) => {}
                Err((_, errno)) => return Err(errno.into()),
            }
        }
        Err(io::Error::other(format!("all {SANDBOXES_MAX} host ids are in use")))
    }

    /// The id of every sandbox if the service has no privileges.
    pub fn shared() -> Self {
        Self { id: ONLY_ID, lock: None }
    }

    /// Whether only the caller holds it.
    pub fn is_free(&self) -> bool {
        self.lock.as_ref().is_none_or(|lock| Arc::strong_count(lock) == 1)
    }

    /// The uid, which is the gid too.
    pub fn id(&self) -> u32 {
        if weakened::lacks(Wall::User) { INSIDE_ID } else { self.id }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn an_id_that_a_process_has_is_not_acquired() {
        if !nix::unistd::geteuid().is_root() {
            let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
            assert!(!required, "not root, and REQUIRE_PRIVILEGED=1");
            eprintln!("SKIP: not root");
            return;
        }
        let state = StateDirectory::open().unwrap();
        let first = HostId::acquire(&state).unwrap().id;
        let taken = HOST_ID_FIRST + (first + 1 - HOST_ID_FIRST) % SANDBOXES_MAX;
        let mut process = Command::new("sleep").arg("600").uid(taken).spawn().unwrap();
        // The next search starts there, unless another test searches in between.
        let next: Vec<HostId> = (0..3).map(|_| HostId::acquire(&state).unwrap()).collect();
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(next.iter().all(|next| next.id != taken), "{taken} was acquired");
    }

    #[test]
    fn an_id_is_free_once_its_last_clone_is_dropped() {
        let lock = Flock::lock(tempfile::tempfile().unwrap(), FlockArg::LockExclusive).unwrap();
        let id = HostId { id: 1, lock: Some(Arc::new(lock)) };
        let clone = id.clone();
        assert!(!id.is_free() && !clone.is_free());
        drop(clone);
        assert!(id.is_free());
    }
}
