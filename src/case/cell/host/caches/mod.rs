//! Directories of containers that last between Cells. Each is kept on this host for one token, image and path.
//!
//! Nothing that a container can write to is kept: a Cell gets a copy, and what its provisioning made of that is copied
//! back. One Cell at a time has the turn of an image. What is kept is exchanged whole, by a rename.

mod lock;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::unistd::{getegid, geteuid};
use uuid::Uuid;

use self::lock::{FileLock, LockShare, lock};
use crate::case::cell::error::ExecError;
use crate::evaluation::cache::{PART, WaitEnded, evict, touch};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::digest::sha256_of;
use cofferdam_tree::{Owner, StopCheck, TreeLimits, copy_selected, remove_tree};

/// The directories of what is kept, and of the locks.
const KEPT: &str = "kept";
const LOCKS: &str = "locks";
/// The lock of all that is kept: who copies it shares it, who changes it has it alone.
const KEPT_LOCK: &str = "kept";
const MODE: u32 = 0o700;
/// Digits of a turn's key that name its lock, so that there are at most 256 of them.
const LOCK_DIGITS: usize = 2;
/// Files and nested directories of one cache.
const ENTRIES_MAX: u64 = 1_000_000;
const DEPTH_MAX: u64 = 128;
/// Bytes of one cache of a Cell.
const CELL_BYTES_MAX: u64 = 32 << 30;
/// How long a Cell waits for the turn of its image: as long as two others may take to provision.
const TURN_WAIT: Duration = Duration::from_mins(30);
/// How long one cache may take to be copied, with the wait for others that copy.
const COPY_TIMEOUT: Duration = Duration::from_mins(15);

/// The caches that the Cells of one token have. Clones are the same ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerCaches {
    directory: PathBuf,
    owner: String,
    bytes_max: u64,
}

/// The caches of one image, as a Cell uses them.
#[derive(Debug)]
pub(super) struct ImageCaches {
    caches: ContainerCaches,
    image: String,
    /// The holder may change what is kept. None if the wait for it took too long.
    turn: Option<FileLock>,
}

impl ContainerCaches {
    /// Caches in `directory`, which is made if it is missing, for `owner`, the name of a token. Of more than `bytes_max`
    /// bytes those go that were not used for the longest time.
    pub fn new(directory: PathBuf, owner: impl Into<String>, bytes_max: u64) -> Self {
        Self { directory, owner: owner.into(), bytes_max }
    }

    /// Waits for the turn of the image with that id. After half an hour the Cell goes on without it: nothing of what it
    /// makes is kept.
    ///
    /// # Errors
    /// It is cancelled, or the directory cannot be used.
    pub(super) fn of_image(
        &self,
        image: &str,
        cancel: &CancelToken,
    ) -> Result<ImageCaches, ExecError> {
        let failed = |error: io::Error| ExecError::failed("caches", error);
        for name in [KEPT, LOCKS] {
            let path = self.directory.join(name);
            DirBuilder::new().recursive(true).mode(MODE).create(path).map_err(failed)?;
        }
        let key = sha256_of(format!("{:?}", (&self.owner, image)).as_bytes());
        let path = self.lock_path(key.get(..LOCK_DIGITS).unwrap_or_default());
        let deadline = Deadline::after(TURN_WAIT);
        let turn = match lock(&path, LockShare::Alone, Some(cancel), deadline).map_err(failed)? {
            Ok(turn) => Some(turn),
            Err(WaitEnded::Cancelled) => return Err(ExecError::failed("caches", "cancelled")),
            Err(WaitEnded::Expired) => {
                log::warn!("the caches of {image} are another Cell's for too long");
                None
            }
        };
        Ok(ImageCaches { caches: self.clone(), image: image.to_owned(), turn })
    }

    fn lock_path(&self, name: &str) -> PathBuf {
        self.directory.join(LOCKS).join(name)
    }

    /// Locks all that is kept.
    fn lock_kept(&self, share: LockShare, deadline: Deadline) -> io::Result<FileLock> {
        let locked = lock(&self.lock_path(KEPT_LOCK), share, None, deadline)?;
        locked.map_err(|_| io::Error::other("others copy for too long"))
    }

    fn kept(&self) -> PathBuf {
        self.directory.join(KEPT)
    }
}

impl ImageCaches {
    /// Copies what is kept of the cache at `path` to the empty directory `to`, if anything is.
    pub(super) fn copy_to(&self, path: &Path, to: &Path) -> io::Result<()> {
        let deadline = Deadline::after(COPY_TIMEOUT);
        let _shared = self.caches.lock_kept(LockShare::Shared, deadline)?;
        let entry = self.entry(path);
        match File::open(&entry) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => {
                touch(&entry);
                copy(&opened?, to, self.caches.bytes_max, deadline)
            }
        }
    }

    /// Keeps what the directory `from` holds as the cache at `path`: files, directories and links, as the caller's,
    /// without set-id bits. Returns false if it is not this Cell's turn.
    pub(super) fn keep(&self, path: &Path, from: &Path) -> io::Result<bool> {
        if self.turn.is_none() {
            return Ok(false);
        }
        let deadline = Deadline::after(COPY_TIMEOUT);
        let _alone = self.caches.lock_kept(LockShare::Alone, deadline)?;
        let (kept, entry) = (self.caches.kept(), self.entry(path));
        remove_unfinished(&kept)?;
        let part = kept.join(format!("{}.{PART}", Uuid::new_v4().simple()));
        DirBuilder::new().mode(MODE).create(&part)?;
        let copied =
            File::open(from).and_then(|from| copy(&from, &part, self.caches.bytes_max, deadline));
        if let Err(error) = copied.and_then(|()| exchange(&part, &entry)) {
            remove(&part)?;
            return Err(error);
        }
        touch(&entry);
        evict(&[kept], self.caches.bytes_max, |found| found == entry)?;
        Ok(true)
    }

    fn entry(&self, path: &Path) -> PathBuf {
        let key = format!("{:?}", (&self.caches.owner, &self.image, path));
        self.caches.kept().join(sha256_of(key.as_bytes()))
    }
}

/// Copies the cache of a Cell in the directory `from` to the empty directory `to`, for the caller.
pub(super) fn copy_cache(from: &Path, to: &Path) -> io::Result<()> {
    copy(&File::open(from)?, to, CELL_BYTES_MAX, Deadline::after(COPY_TIMEOUT))
}

fn copy(from: &File, to: &Path, bytes_max: u64, deadline: Deadline) -> io::Result<()> {
    let to = File::open(to)?;
    let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
    let limits = TreeLimits { entries_max: ENTRIES_MAX, bytes_max, depth_max: DEPTH_MAX };
    let is_late = || deadline.passed();
    copy_selected(from.as_fd(), to.as_fd(), owner, &limits, &|_| false, StopCheck(&is_late))
        .map(drop)
        .map_err(io::Error::other)
}

/// Removes the directory `path` with all that is in it, if it is there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let removal = remove_tree(File::open(parent)?.as_fd(), name).map_err(io::Error::other)?;
    match removal.left {
        0 => Ok(()),
        left => Err(io::Error::other(format!("{left} entries are left"))),
    }
}

/// Puts `part` in the place of `entry`, which may not be there, in one step.
fn exchange(part: &Path, entry: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, part, AT_FDCWD, entry, RenameFlags::RENAME_EXCHANGE) {
        Ok(()) => remove(part),
        Err(Errno::ENOENT) => fs::rename(part, entry),
        // The file system cannot do that. No other process reads the entry now.
        Err(Errno::EINVAL | Errno::ENOSYS) => {
            remove(entry)?;
            fs::rename(part, entry)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Removes the unfinished entries of a killed process. The caller holds the lock, so nothing else changes.
fn remove_unfinished(kept: &Path) -> io::Result<()> {
    for entry in fs::read_dir(kept)? {
        let path = entry?.path();
        if path.extension().is_some() {
            remove(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
