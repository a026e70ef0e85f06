//! The lock of the one service that owns a store: its file `lock`, which holds the process id.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::{Mode, fstat, stat};

use super::directory::StoreDir;
use crate::store::error::StoreError;

const LOCK: &str = "lock";
/// The longest process id, bytes.
const PID_BYTES_MAX: u64 = 16;

/// The lock. The kernel releases it with the process.
#[derive(Debug)]
pub(crate) struct ServiceLock(Flock<File>);

impl ServiceLock {
    /// Takes the lock of the store `root`.
    ///
    /// # Errors
    /// [`StoreError::Owned`] if another service holds it.
    pub(crate) fn take(root: &StoreDir) -> Result<Self, StoreError> {
        let flags = OFlag::O_RDWR
            | OFlag::O_CREAT
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_CLOEXEC;
        let file = openat(root.fd(), LOCK, flags, Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(|errno| root.error("open", LOCK, errno))?;
        let locked = Flock::lock(File::from(file), FlockArg::LockExclusiveNonblock);
        let mut lock = locked.map_err(|(file, errno)| match errno {
            Errno::EWOULDBLOCK => {
                StoreError::Owned { path: root.path().to_owned(), pid: pid_in(&file) }
            }
            errno => root.error("lock", LOCK, errno),
        })?;
        // The process id is only for the message of a refusal, so a full disk does not matter.
        let _ = write_pid(&mut lock);
        Ok(Self(lock))
    }

    /// Whether this is the lock of the store that is now at `root`.
    pub(crate) fn is_of(&self, root: &Path) -> bool {
        let (Ok(ours), Ok(there)) = (fstat(&*self.0), stat(&root.join(LOCK))) else { return false };
        (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
    }
}

fn write_pid(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}

/// The process id in a lock file.
fn pid_in(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(PID_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
