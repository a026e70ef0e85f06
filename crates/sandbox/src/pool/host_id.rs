//! Who a tenant is: 10001 inside the box, a host uid of its own outside.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::host::state::StateDirectory;
use crate::host::weakened;
use crate::host::weakened::Wall;
use crate::launch::unprivileged::ONLY_ID;
use crate::plan::input::INSIDE_ID;
use crate::sys;

/// The first host uid and gid given to boxes. Below 65536, so that it exists in
/// a container's usual map too, and between the ids of people (from 1000) and
/// those systemd hands out (from 61184).
const HOST_ID_FIRST: u32 = 56_000;
/// How many boxes can be alive at once on this host: the host ids there are to give.
pub const SANDBOXES_MAX: u32 = 4_096;
/// Between the places where two processes with successive pids begin to look.
const SPREAD: u32 = 61;

/// A host uid (and the gid of the same number) that no other live box has:
/// `RLIMIT_NPROC`, keyrings and signals are counted and allowed per host uid.
/// Held by a file lock, so that it is free again however its owner ends; a clone holds it too.
#[derive(Debug, Clone)]
pub struct HostId {
    id: u32,
    lock: Option<Arc<Flock<File>>>,
}

impl HostId {
    /// An id nobody holds, and no process on this host has: one that was killed with its server may
    /// not be dead yet. Where the search begins depends on the process, so
    /// that many that start at once do not try each other's ids one by one.
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

    /// The one there is where there are no privileges: every box's.
    pub fn shared() -> Self {
        Self { id: ONLY_ID, lock: None }
    }

    /// Whether no box holds it beside the caller.
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
    fn an_id_that_some_process_has_is_lent_to_nobody() {
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
        // The next search begins there, unless another test's search does.
        let next: Vec<HostId> = (0..3).map(|_| HostId::acquire(&state).unwrap()).collect();
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(next.iter().all(|next| next.id != taken), "{taken} was lent");
    }

    #[test]
    fn an_id_is_free_when_no_clone_of_it_is_left() {
        let lock = Flock::lock(tempfile::tempfile().unwrap(), FlockArg::LockExclusive).unwrap();
        let id = HostId { id: 1, lock: Some(Arc::new(lock)) };
        let clone = id.clone();
        assert!(!id.is_free() && !clone.is_free());
        drop(clone);
        assert!(id.is_free());
    }
}
