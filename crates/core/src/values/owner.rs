//! The owner of files that a tenant may write.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::stat::FileStat;
use nix::unistd::{Gid, Uid};

/// The numeric user and group id of a file's owner on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

impl Owner {
    /// The owner of the file with this status.
    pub fn of(stat: &FileStat) -> Self {
        Self { uid: stat.st_uid, gid: stat.st_gid }
    }

    /// The user id for calls of `nix`.
    pub fn uid(self) -> Uid {
        Uid::from_raw(self.uid)
    }

    /// The group id for calls of `nix`.
    pub fn gid(self) -> Gid {
        Gid::from_raw(self.gid)
    }

    /// Changes the owner of an open file or directory to this one.
    ///
    /// # Errors
    /// The errno of `fchown`.
    pub fn take(self, file: impl AsFd) -> Result<(), Errno> {
        nix::unistd::fchown(file, Some(self.uid()), Some(self.gid()))
    }
}
