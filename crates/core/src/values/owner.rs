//! Who owns what a tenant may write.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::stat::FileStat;
use nix::unistd::{Gid, Uid};

/// A user and a group of the host, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

impl Owner {
    pub fn of(stat: &FileStat) -> Self {
        Self { uid: stat.st_uid, gid: stat.st_gid }
    }

    pub fn uid(self) -> Uid {
        Uid::from_raw(self.uid)
    }

    pub fn gid(self) -> Gid {
        Gid::from_raw(self.gid)
    }

    /// Gives an open file or directory to this owner.
    pub fn take(self, file: impl AsFd) -> Result<(), Errno> {
        nix::unistd::fchown(file, Some(self.uid()), Some(self.gid()))
    }
}
