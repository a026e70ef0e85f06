//! The owner of a job: one opening of the store, which is alive while it holds its lock.
//!
//! The owner locks a file `owners/<name>`. The kernel releases the lock when the process dies. A
//! process that gets the lock of another owner's file has claimed the jobs of that owner.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::{Mode, fstat};

use super::directory::StoreDir;
use crate::store::error::StoreError;

/// How many new names are tried before registering fails.
const ATTEMPTS_MAX: u32 = 16;

/// This opening of the store.
#[derive(Debug)]
pub(crate) struct StoreOwner {
    name: String,
    owners: StoreDir,
    _lock: Flock<File>,
}

impl StoreOwner {
    /// Registers under a new name.
    pub(crate) fn register(owners: StoreDir) -> Result<Self, StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            let name = uuid::Uuid::new_v4().simple().to_string();
            let file = owners.create_file(&name)?;
            // A sweep of another process may have removed the file in between.
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

/// Whether a text can be the name of an owner, which names a file.
pub(crate) fn is_owner_name(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether that owner of the store at `store` is dead. Changes nothing.
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

/// The claimed dead owners. Their files are removed at the end.
#[derive(Debug)]
pub(crate) struct Claims<'a> {
    owners: &'a StoreDir,
    by_name: HashMap<String, Option<Flock<File>>>,
}

impl<'a> Claims<'a> {
    pub(crate) fn new(owners: &'a StoreDir) -> Self {
        Self { owners, by_name: HashMap::new() }
    }

    /// Claims `owner`. Returns whether it is dead and no other process has claimed it.
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

    /// Removes the files of all dead owners.
    pub(crate) fn sweep(mut self) -> Result<(), StoreError> {
        for name in self.owners.names()? {
            let Some(name) = name.to_str().filter(|name| is_owner_name(name)) else { continue };
            // A file that cannot be opened is left for the operator.
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

/// Locks the file of an owner, unless it is locked or removed.
fn lock(file: File) -> Option<Flock<File>> {
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()?;
    let is_there = fstat(&*lock).is_ok_and(|stat| stat.st_nlink > 0);
    is_there.then_some(lock)
}
