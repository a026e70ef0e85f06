//! Who runs a job: one opening of the store, known to be alive by the lock it holds.
//!
//! A file `owners/<name>` is locked as long as the owner lives; the kernel drops the lock with
//! the process, and nothing else does. Whoever gets the lock of another's file has claimed what
//! that one left.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::{Mode, fstat};

use super::directory::StoreDir;
use crate::store::error::StoreError;

/// How often a fresh name is tried before a sweeper is said to be in the way.
const ATTEMPTS_MAX: u32 = 16;

/// This opening of the store.
#[derive(Debug)]
pub(crate) struct StoreOwner {
    name: String,
    owners: StoreDir,
    _lock: Flock<File>,
}

impl StoreOwner {
    /// Registers under a fresh name.
    pub(crate) fn register(owners: StoreDir) -> Result<Self, StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            let name = uuid::Uuid::new_v4().simple().to_string();
            let file = owners.create_file(&name)?;
            // A sweeper may have come between the two, and removed it.
            if let Some(lock) = lock(file) {
                return Ok(Self { name, owners, _lock: lock });
            }
        }
        Err(owners.error("lock", "", Errno::EAGAIN))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn owners(&self) -> &StoreDir {
        &self.owners
    }
}

impl Drop for StoreOwner {
    fn drop(&mut self) {
        let _ = self.owners.unlink(&self.name);
    }
}

/// Whether a text can be an owner's name: it names a file.
pub(crate) fn is_owner_name(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether that owner of the store at `store` is dead, by a look that leaves no trace.
pub(crate) fn is_dead(store: &Path, owner: &str) -> bool {
    if !is_owner_name(owner) {
        return true;
    }
    let path = store.join("owners").join(owner);
    let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    match nix::fcntl::open(&path, flags, Mode::empty()) {
        Ok(file) => Flock::lock(File::from(file), FlockArg::LockExclusiveNonblock).is_ok(),
        Err(errno) => errno == Errno::ENOENT,
    }
}

/// What dead owners left, claimed; each is forgotten at the end.
#[derive(Debug)]
pub(crate) struct Claims<'a> {
    owners: &'a StoreDir,
    by_name: HashMap<String, Option<Flock<File>>>,
}

impl<'a> Claims<'a> {
    pub(crate) fn new(owners: &'a StoreDir) -> Self {
        Self { owners, by_name: HashMap::new() }
    }

    /// Whether what `owner` left is ours to deal with: it is dead, and nobody else has it.
    pub(crate) fn claim(&mut self, owner: &str) -> Result<bool, StoreError> {
        if !is_owner_name(owner) {
            return Ok(true);
        }
        if let Some(claim) = self.by_name.get(owner) {
            return Ok(claim.is_some());
        }
        let flags = OFlag::O_RDWR
            | OFlag::O_CREAT
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_CLOEXEC;
        let file = openat(self.owners.fd(), owner, flags, Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(|errno| self.owners.error("open", owner, errno))?;
        let claim = lock(File::from(file));
        let is_claimed = claim.is_some();
        self.by_name.insert(owner.to_owned(), claim);
        Ok(is_claimed)
    }

    /// Forgets every owner that is dead.
    pub(crate) fn sweep(mut self) -> Result<(), StoreError> {
        for name in self.owners.names()? {
            let Some(name) = name.to_str().filter(|name| is_owner_name(name)) else { continue };
            // What cannot be opened is left for somebody to look at.
            if self.claim(name).unwrap_or(false) {
                self.owners.unlink(name)?;
                self.by_name.remove(name);
            }
        }
        Ok(())
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        for (name, claim) in &self.by_name {
            if claim.is_some() {
                let _ = self.owners.unlink(name);
            }
        }
    }
}

/// The lock of an owner's file, unless somebody has it or the file is gone.
fn lock(file: File) -> Option<Flock<File>> {
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()?;
    let is_there = fstat(&*lock).is_ok_and(|stat| stat.st_nlink > 0);
    is_there.then_some(lock)
}
