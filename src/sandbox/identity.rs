//! Who a tenant is: 10001 inside the box, a host uid of its own outside.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::state::StateDirectory;
use super::unprivileged::ONLY_ID;
use super::weakened::{self, Wall};

/// The uid and gid a program sees.
pub const INSIDE_ID: u32 = 10_001;
/// The first host uid and gid given to boxes. Below 65536, so that it exists in
/// a container's usual map too, and between the ids of people (from 1000) and
/// those systemd hands out (from 61184).
const HOST_ID_FIRST: u32 = 56_000;
/// How many boxes can be alive at once on this host: the host ids there are to give.
pub const BOXES_MAX: u32 = 4_096;
/// Between the places where two processes with successive pids begin to look.
const SPREAD: u32 = 61;

/// A host uid (and the gid of the same number) that no other live box has:
/// `RLIMIT_NPROC`, keyrings and signals are counted and allowed per host uid.
/// Held by a file lock, so that it is free again however its owner ends.
#[derive(Debug)]
pub struct HostId {
    id: u32,
    _lock: Option<Flock<File>>,
}

impl HostId {
    /// An id nobody holds. Where the search begins depends on the process, so
    /// that many that start at once do not try each other's ids one by one.
    pub fn acquire(state: &StateDirectory) -> io::Result<Self> {
        static ACQUIRED: AtomicU32 = AtomicU32::new(0);
        let first = std::process::id()
            .wrapping_mul(SPREAD)
            .wrapping_add(ACQUIRED.fetch_add(1, Ordering::Relaxed));
        for step in 0..BOXES_MAX {
            let id = HOST_ID_FIRST + first.wrapping_add(step) % BOXES_MAX;
            let file = state.create_file(&format!("uids/{id}"))?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(Self { id, _lock: Some(lock) }),
                Err((_, Errno::EWOULDBLOCK)) => {}
                Err((_, errno)) => return Err(errno.into()),
            }
        }
        Err(io::Error::other(format!("all {BOXES_MAX} host ids are in use")))
    }

    /// The one there is where there are no privileges: every box's.
    pub fn shared() -> Self {
        Self { id: ONLY_ID, _lock: None }
    }

    /// The uid, which is the gid too.
    pub fn id(&self) -> u32 {
        if weakened::lacks(Wall::User) { INSIDE_ID } else { self.id }
    }
}
