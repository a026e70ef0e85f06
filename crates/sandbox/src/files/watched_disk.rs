//! Whether a file system that outlives its sandbox became full while it ran.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::sandbox_fs::is_full;
use crate::sys;

/// A file system on disk refuses a large write whole: less than this may be left.
const REFUSED_BYTES_MAX: u64 = 2 << 20;

/// A mounted file system, with what was free before a program ran.
#[derive(Debug)]
pub struct WatchedDisk {
    mount: OwnedFd,
    free_bytes_before: u64,
}

impl WatchedDisk {
    /// Notes what is free.
    pub fn new(mount: OwnedFd) -> Self {
        let free_bytes_before = sys::free_space(&mount).map_or(0, |(bytes, _)| bytes);
        Self { mount, free_bytes_before }
    }

    /// Whether its bytes or inodes are used up.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn is_full(&self) -> io::Result<bool> {
        let (bytes, _) = sys::free_space(&self.mount)?;
        Ok(is_used_up(self.free_bytes_before, bytes) || is_full(self.mount.as_fd())?)
    }
}

/// Whether a large write was refused with `now` bytes free, of `before`.
fn is_used_up(before: u64, now: u64) -> bool {
    now < REFUSED_BYTES_MAX.min(before / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_used_up_when_a_large_write_may_have_been_refused() {
        for (before, now, is) in [
            (20 << 20, 0, true),
            (20 << 20, (2 << 20) - 4096, true),
            (20 << 20, 2 << 20, false),
            (1 << 20, 1020 << 10, false),
            (1 << 20, 500 << 10, true),
            (0, 0, false),
        ] {
            assert_eq!(is_used_up(before, now), is, "{before} {now}");
        }
    }
}
