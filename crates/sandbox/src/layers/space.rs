//! Amounts of room on a file system.

use std::io;
use std::os::fd::AsFd;

use crate::sys;

/// What a new writable layer has at least: less would be of no use, and 0 would mean no limit.
pub const LEAST_ROOM: DiskSpace = DiskSpace { bytes: 64 << 10, inodes: 16 };

/// A number of bytes and of inodes: a limit, or what is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes of files' contents, in whole pages.
    pub bytes: u64,
    /// Files, directories and links, hard links included.
    pub inodes: u64,
}

impl DiskSpace {
    /// What is used of the file system of `directory`.
    pub(super) fn used_on(directory: impl AsFd) -> io::Result<Self> {
        let (bytes, inodes) = sys::used_space(directory)?;
        Ok(Self { bytes, inodes })
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }

    /// The difference to `other`; 0 where `other` is larger.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            inodes: self.inodes.saturating_sub(other.inodes),
        }
    }

    /// Whether it has as much of both as `other`.
    pub fn covers(self, other: Self) -> bool {
        self.bytes >= other.bytes && self.inodes >= other.inodes
    }
}

/// Where a workspace's files are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Storage {
    /// In memory.
    #[default]
    Memory,
    /// In a sparse image on a loop device.
    Disk,
}

/// What is used of a workspace's file system, all layers together, and its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Used bytes.
    pub used_bytes: u64,
    /// The limit in bytes.
    pub limit_bytes: u64,
    /// Used inodes.
    pub used_inodes: u64,
    /// The limit in inodes.
    pub limit_inodes: u64,
}
