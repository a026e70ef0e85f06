//! Locks of files, which the kernel releases with the process that holds them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg, OFlag};

use crate::evaluation::cache::{WaitEnded, is_raised};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

const MODE: u32 = 0o600;
/// How often one that waits tries again.
const TRIED_EVERY: Duration = Duration::from_millis(20);

/// A locked file. Dropped, others can lock it.
#[derive(Debug)]
pub(super) struct FileLock {
    _file: Flock<File>,
}

/// With how many others a file is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockShare {
    /// With all that want no more than that.
    Shared,
    /// With none.
    Alone,
}

/// Locks the file at `path`, which is made if it is missing. The inner error says that it is still another's.
///
/// # Errors
/// The file cannot be opened.
pub(super) fn lock(
    path: &Path,
    share: LockShare,
    cancel: Option<&CancelToken>,
    deadline: Deadline,
) -> io::Result<Result<FileLock, WaitEnded>> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(MODE);
    let mut file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)?;
    let how = match share {
        LockShare::Shared => FlockArg::LockSharedNonblock,
        LockShare::Alone => FlockArg::LockExclusiveNonblock,
    };
    loop {
        file = match Flock::lock(file, how) {
            Ok(file) => return Ok(Ok(FileLock { _file: file })),
            Err((file, _)) => file,
        };
        if cancel.is_some_and(is_raised) {
            return Ok(Err(WaitEnded::Cancelled));
        }
        if deadline.passed() {
            return Ok(Err(WaitEnded::Expired));
        }
        thread::sleep(deadline.remaining().min(TRIED_EVERY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_locked_by_one_or_shared_and_a_wait_ends() {
        use LockShare::{Alone, Shared};
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        let cancel = CancelToken::new().unwrap();
        let (over, soon) = (Duration::ZERO, Duration::from_secs(60));
        let tried = |share, wait| lock(&path, share, Some(&cancel), Deadline::after(wait)).unwrap();
        let shared = (tried(Shared, over).unwrap(), tried(Shared, over).unwrap());
        assert_eq!(tried(Alone, over).err(), Some(WaitEnded::Expired));
        drop(shared);
        let alone = tried(Alone, over).unwrap();
        assert_eq!(tried(Shared, over).err(), Some(WaitEnded::Expired));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| tried(Alone, soon).is_ok());
            drop(alone);
            assert!(waiting.join().unwrap());
        });
        let _alone = tried(Alone, over).unwrap();
        cancel.cancel();
        assert_eq!(tried(Shared, soon).err(), Some(WaitEnded::Cancelled));
    }
}
